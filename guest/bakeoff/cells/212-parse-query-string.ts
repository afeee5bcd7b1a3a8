// returns: {"a":["1","3"],"b":"two words","c":""}
type Query = Record<string, string | string[]>;
function parseQuery(qs: string): Query {
  const out: Query = {};
  for (const part of qs.replace(/^\?/, "").split("&")) {
    const [k, v = ""] = part.split("=").map(decodeURIComponent) as [string, string?];
    const prev = out[k];
    out[k] = prev === undefined ? v : Array.isArray(prev) ? [...prev, v] : [prev, v];
  }
  return out;
}
return parseQuery("?a=1&b=two%20words&a=3&c");
