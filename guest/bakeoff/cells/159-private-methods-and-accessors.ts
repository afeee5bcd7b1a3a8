// returns: "hu***** (7)"
class Vault {
  #secret: string;
  constructor(secret: string) { this.#secret = secret; }
  #mask(n: number = 2): string { return this.#secret.slice(0, n) + "*".repeat(this.#secret.length - n); }
  get #len(): number { return this.#secret.length; }
  static async #make(s: string): Promise<Vault> { return new Vault(s); }
  static create(s: string): Promise<Vault> { return Vault.#make(s); }
  show(): string { return `${this.#mask()} (${this.#len})`; }
}
return (await Vault.create("hunter2")).show();
