// returns: ["FizzBuzz","mid"]
const n: number = 15;
const kind = n % 15 === 0 ? "FizzBuzz" as const
  : n % 5 === 0 ? "Buzz" as const
  : n % 3 === 0 ? ("Fizz" as const)
  : (n as unknown as string);
const z = n > 5 ? n < 20 ? <string>"mid" : "high" : "low";
return [kind, z];
