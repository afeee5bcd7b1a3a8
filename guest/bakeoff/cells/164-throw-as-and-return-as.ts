// returns: ["small","big","neg"]
function f(n: number): string {
  if (n < 0) throw new Error("neg") as unknown as Error;
  return (n > 10
    ? "big"
    : "small") as string;
}
let m = "";
try { f(-1); } catch (e) { m = (<Error>e).message; }
return [f(1), f(11), m];
