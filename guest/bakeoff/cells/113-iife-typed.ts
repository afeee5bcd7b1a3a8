// returns: [8,"a!",["z"],5]
const r = (function (this: any, x: number): number { return x * 2; })(4);
const s = ((x: string): string => x + "!")("a");
const t = await (async <T,>(v: T): Promise<T[]> => [v])("z");
const u = (() => { enum L { A = 5 } return L.A; })();
void (async (): Promise<void> => {})();
!function (): void {}();
return [r, s, t, u];
