// returns: [1,"1d",[1,2],1]
const a /* name */ : /* type */ number /* eq */ = /* val */ 1 /* end */;
function f(/* no this */ a /* A */ : number, // first
  b: string /* B */ = "d", // second
): /* ret */ string /* body */ {
  return a /* + */ + b;
}
type X = /* union */ | /* 1 */ 1 // one
  | 2; // two
const g = <T /* tp */, /* U */ U>(x: T /* x */, y?: U): [T, U?] /* arrow */ => [x, y];
return [a, f(1), g(1, 2), a as /* cast */ number];
