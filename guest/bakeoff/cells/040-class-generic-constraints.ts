// returns: [[1,5],"b"]
class Repo<T extends { id: string }, K extends keyof T = keyof T> {
  private store = new Map<string, T>();
  save(...items: T[]): void { for (const i of items) this.store.set(i.id, i); }
  find(pred: (item: T) => boolean): T | undefined { return [...this.store.values()].find(pred); }
  column<C extends K>(name: C): Array<T[C]> { return [...this.store.values()].map((i) => i[name]); }
}
const repo = new Repo<{ id: string; qty: number }>();
repo.save({ id: "a", qty: 1 }, { id: "b", qty: 5 });
return [repo.column("qty"), repo.find((i) => i.qty > 2)?.id];
