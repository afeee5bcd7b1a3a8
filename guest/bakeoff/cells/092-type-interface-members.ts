// returns: {"a":1,"b":2}
interface Everything<in out T = unknown> extends Pick<Date, "getTime">, Iterable<number> {
  (call: number): string;
  new (construct: string): Everything;
  readonly prop: T;
  optional?: string;
  method(): void;
  optMethod?<U>(u: U): U;
  get acc(): number;
  set acc(v: number);
  [key: string]: unknown;
  1: string;
  "quoted-name": boolean;
  [Symbol.iterator](): Iterator<number>;
}
interface Empty {}
interface A { a: 1 } interface B extends A { b: 2 }
const b: B = { a: 1, b: 2 };
return b;
