// returns: [[[89,55],[55,34]],[2,2]]
type Row = readonly number[];
class Matrix {
  static identity(n: number): Matrix {
    return new Matrix(Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i === j ? 1 : 0))));
  }
  constructor(private readonly rows: readonly Row[]) {
    if (rows.some((r) => r.length !== rows[0]!.length)) throw new Error("ragged");
  }
  get shape(): [rows: number, cols: number] { return [this.rows.length, this.rows[0]?.length ?? 0]; }
  at(i: number, j: number): number { return this.rows[i]![j]!; }
  mul(other: Matrix): Matrix {
    const [n, m] = this.shape, [m2, p] = other.shape;
    if (m !== m2) throw new Error(`shape mismatch: ${n}x${m} * ${m2}x${p}`);
    const out: number[][] = [];
    for (let i = 0; i < n; i++) {
      const row: number[] = [];
      for (let j = 0; j < p; j++) {
        let s = 0;
        for (let k = 0; k < m; k++) s += this.at(i, k) * other.at(k, j);
        row.push(s);
      }
      out.push(row);
    }
    return new Matrix(out);
  }
  pow(e: number): Matrix {
    let r = Matrix.identity(this.shape[0]), b: Matrix = this;
    for (; e > 0; e >>= 1) { if (e & 1) r = r.mul(b); b = b.mul(b); }
    return r;
  }
  toJSON(): readonly Row[] { return this.rows; }
}
return [new Matrix([[1, 1], [1, 0]]).pow(10), Matrix.identity(2).shape];
