// throws-at: 14
declare global {
  interface Window { a: string }
}
declare module "x" {
  const y: number;
}
declare class Foo {
  bar(): void;
}
declare function baz(
  a: number,
): string;
throw new Error("d");
