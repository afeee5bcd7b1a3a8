// returns: [["mail a@b"],"no binding for missing"]
type Token<T> = symbol & { __type?: T };
const token = <T>(name: string): Token<T> => Symbol(name) as Token<T>;
class Container {
  private factories = new Map<symbol, (c: Container) => unknown>();
  private cache = new Map<symbol, unknown>();
  bind<T>(t: Token<T>, f: (c: Container) => T): this { this.factories.set(t, f); return this; }
  get<T>(t: Token<T>): T {
    if (!this.cache.has(t)) {
      const f = this.factories.get(t);
      if (!f) throw new Error(`no binding for ${t.description}`);
      this.cache.set(t, f(this));
    }
    return this.cache.get(t) as T;
  }
}
interface Logger { log(m: string): void; lines: string[] }
interface Mailer { send(to: string): boolean }
const LOGGER = token<Logger>("logger"), MAILER = token<Mailer>("mailer");
const c = new Container()
  .bind(LOGGER, () => ({ lines: [] as string[], log(m: string) { this.lines.push(m); } }))
  .bind(MAILER, (k) => { const l = k.get(LOGGER); return { send: (to: string) => (l.log(`mail ${to}`), true) }; });
c.get(MAILER).send("a@b");
let msg: string | undefined;
try { c.get(token<number>("missing")); } catch (e) { ({ message: msg } = e as Error); }
return [c.get(LOGGER).lines, msg];
