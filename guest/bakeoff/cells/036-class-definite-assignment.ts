// returns: [["x","y"],true,4]
class Loader {
  data!: string[];
  private ready!: boolean;
  optional?: number;
  async load(): Promise<void> {
    this.data = await Promise.resolve(["x", "y"]);
    this.ready = true;
  }
  get isReady(): boolean { return this.ready; }
}
const l = new Loader();
await l.load();
let later!: number;
later = 4;
return [l.data, l.isReady, later];
