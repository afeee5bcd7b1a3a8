// returns: {"order":["lint@1","build@4","test@6","deploy@7"],"finish":7,"stuck":["cyc"]}
interface Task { id: string; priority: number; deps?: string[]; cost: number }
abstract class Queue<T> {
  protected items: T[] = [];
  abstract compare(a: T, b: T): number;
  push(...xs: T[]): void { this.items.push(...xs); this.items.sort((a, b) => this.compare(a, b)); }
  pop(): T | undefined { return this.items.shift(); }
  get size(): number { return this.items.length; }
}
class TaskQueue extends Queue<Task> {
  override compare(a: Task, b: Task): number { return b.priority - a.priority || a.id.localeCompare(b.id); }
}
function schedule(tasks: Task[]): { order: string[]; finish: number; stuck: string[] } {
  const done = new Set<string>();
  const waiting = new Map<string, Task>(tasks.map((t): [string, Task] => [t.id, t]));
  const q = new TaskQueue();
  const order: string[] = [];
  let clock = 0;
  const release = (): void => {
    for (const [id, t] of [...waiting]) {
      if ((t.deps ?? []).every((d) => done.has(d))) { waiting.delete(id); q.push(t); }
    }
  };
  release();
  for (let t: Task | undefined; (t = q.pop()) !== undefined; release()) {
    clock += t!.cost;
    done.add(t!.id);
    order.push(`${t!.id}@${clock}`);
  }
  return { order, finish: clock, stuck: [...waiting.keys()] };
}
return schedule([
  { id: "deploy", priority: 9, deps: ["build", "test"], cost: 1 },
  { id: "build", priority: 5, cost: 3 },
  { id: "test", priority: 5, deps: ["build"], cost: 2 },
  { id: "lint", priority: 7, cost: 1 },
  { id: "cyc", priority: 1, deps: ["cyc"], cost: 1 },
]);
