// returns: ["hey?",8]
const flag: boolean = false;
const pick = flag
  ? async (a: string): Promise<string> => a + "!"
  : async (a: string): Promise<string> => a + "?";
const nest = flag ? 1 : flag ? 2 : (v: number): number => v * 2;
return [await pick("hey"), (nest as (v: number) => number)(4)];
