// returns: [7,2]
class Service {
  constructor(
    private readonly repo: Map<string, number>,
    /** how many */
    public limit: number = 10, // trailing
    readonly options: { verbose?: boolean } = {},
    plain?: string,
  ) {
    if (plain) this.limit = plain.length;
  }
  total(): number { let t = 0; for (const v of this.repo.values()) t += v; return Math.min(t, this.limit); }
}
return [new Service(new Map([["a", 7]])).total(), new Service(new Map([["a", 7]]), 3, {}, "ab").total()];
