// returns: ["18446744073709551616",1000000,280,5.501,true,"1.0"]
const big: bigint = 2n ** 64n;
const sep: number = 1_000_000;
const hex = 0xff as const, oct = 0o17, bin = 0b1010;
const f: number = .5 + 5. + 1e-3;
return [big.toString(), sep, hex + oct + bin, f, (5n as bigint) > (4 as number), 1..toFixed(1)];
