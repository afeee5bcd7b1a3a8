// returns: [["click:2","end:0"],3]
class Handler {
  private log: string[] = [];
  onEvent = (name: string, ...args: unknown[]): void => {
    this.log.push(`${name}:${args.length}`);
  };
  onAsync = async <T,>(v: T): Promise<T> => v;
  get lines(): readonly string[] { return this.log; }
}
const h = new Handler();
const { onEvent } = h;
onEvent("click", 1, 2);
onEvent("end");
return [h.lines, await h.onAsync<number>(3)];
