// returns: ["done X",["> x","< done X"]]
type Middleware = (next: (req: string) => Promise<string>) => (req: string) => Promise<string>;
const log: string[] = [];
const logger: Middleware = (next) => async (req) => { log.push(`> ${req}`); const r = await next(req); log.push(`< ${r}`); return r; };
const upper: Middleware = (next) => (req) => next(req.toUpperCase());
const compose = (...ms: Middleware[]) => (last: (req: string) => Promise<string>) => ms.reduceRight((acc, m) => m(acc), last);
const app: (req: string) => Promise<string> = compose(logger, upper)(async (r: string): Promise<string> => `done ${r}`);
return [await app("x"), log];
