// returns: [12,[1,2],255]
function parse(input: string): number;
function parse(input: string[]): number[];
function parse(input: string, radix: number): number;
function parse(input: string | string[], radix: number = 10): number | number[] {
  return Array.isArray(input) ? input.map((s) => parseInt(s, radix)) : parseInt(input, radix);
}
return [parse("12"), parse(["1", "2"]), parse("ff", 16)];
