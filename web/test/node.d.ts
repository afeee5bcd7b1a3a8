/** The part of Node's API that the tests use. */
declare module "node:test" {
  export default function test(name: string, run: () => void | Promise<void>): void;
}
declare module "node:assert/strict" {
  interface Assert {
    ok(value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    match(value: string, pattern: RegExp): void;
  }
  const assert: Assert;
  export default assert;
}
