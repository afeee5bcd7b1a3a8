import assert from "node:assert/strict";
import test from "node:test";

import { exampleOf, parseJson, resolveSchema, type Schema } from "../src/views/json_schema";

const ROOT: Schema = {
  $defs: { Port: { type: "integer", minimum: 1, description: "A port" }, Loop: { $ref: "#/$defs/Loop" } },
  type: "object",
  required: ["port", "name", "loop"],
  properties: { port: { $ref: "#/$defs/Port" }, name: { anyOf: [{ type: "null" }, { type: "string" }] }, loop: { $ref: "#/$defs/Loop" }, extra: { type: "string" } },
};

test("an example has the required fields, with references and alternatives resolved", () => {
  assert.deepEqual(exampleOf(ROOT), { port: 1, name: "", loop: null });
});

test("what stands beside a reference wins", () => {
  assert.deepEqual(resolveSchema({ $ref: "#/$defs/Port", description: "Mine" }, ROOT), { type: "integer", minimum: 1, description: "Mine" });
});

test("wrong JSON is explained", () => {
  assert.match(parseJson("{oops").problem, /^This is not valid JSON: /);
  assert.deepEqual(parseJson("[1]"), { value: [1], problem: "" });
});
