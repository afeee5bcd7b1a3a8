// returns: [{"verb":"get","path":"/users"},"ab","nested 2!"]
type Verb = "get" | "post";
type Route = `${Verb}:/${string}`;
type Parse<S extends string> = S extends `${infer V}:${infer P}` ? { verb: V; path: P } : never;
function split<S extends Route>(s: S): Parse<S> {
  const [verb, path] = s.split(":") as [string, string];
  return { verb, path } as Parse<S>;
}
const x: `a${"b" | "c"}` = `ab`;
return [split("get:/users"), x, `${`nested ${1 + 1}` as string}!`];
