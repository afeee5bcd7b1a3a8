// returns: "SELECT id, name FROM users WHERE age > 3 AND name != 'x' LIMIT 10"
class Query {
  private parts: { select?: string[]; from?: string; where: string[]; limit?: number } = { where: [] };
  select(...cols: string[]): this { this.parts.select = cols; return this; }
  from(table: string): this { this.parts.from = table; return this; }
  where(cond: string): this { this.parts.where.push(cond); return this; }
  limit(n: number): this { this.parts.limit = n; return this; }
  build(): string {
    const { select = ["*"], from, where, limit } = this.parts;
    return `SELECT ${select.join(", ")} FROM ${from!}` +
      (where.length ? ` WHERE ${where.join(" AND ")}` : "") +
      (limit !== undefined ? ` LIMIT ${limit}` : "");
  }
}
return new Query().select("id", "name").from("users").where("age > 3").where("name != 'x'").limit(10).build();
