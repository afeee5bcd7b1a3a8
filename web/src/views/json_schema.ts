/** JSON Schema, as far as forms and examples need it. */
import type { Json } from "../api/types";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: Json;
  const?: Json;
  enum?: Json[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  minimum?: number;
  maximum?: number;
  pattern?: string;
  format?: string;
}

const MAX_DEPTH = 6;

/** Follow a reference within the document; merge what stands beside it. */
export function resolveSchema(schema: Schema, root: Schema): Schema {
  let current = schema;
  for (let depth = 0; depth < MAX_DEPTH && current.$ref !== undefined; depth += 1) {
    const { $ref, ...beside } = current;
    const target = findReference(root, $ref);
    if (target === undefined) return beside;
    current = { ...target, ...beside };
  }
  if (current.allOf?.length === 1 && current.allOf[0] !== undefined) {
    const { allOf, ...beside } = current;
    return { ...resolveSchema(allOf[0] as Schema, root), ...beside };
  }
  return current;
}

/** Return the alternatives of a schema without null. */
export function alternativesOf(schema: Schema, root: Schema): Schema[] {
  const found = schema.anyOf ?? schema.oneOf;
  if (found === undefined) return [schema];
  return found.map((each) => resolveSchema(each, root)).filter((each) => each.type !== "null");
}

/** Return the type of a value that the schema allows; `any` if it allows several. */
export function typeOf(schema: Schema): string {
  if (schema.enum !== undefined) return "enum";
  if (schema.const !== undefined) return "enum";
  const types = (Array.isArray(schema.type) ? schema.type : [schema.type]).filter((each) => each !== undefined && each !== "null");
  if (types.length === 1 && types[0] !== undefined) return types[0];
  if (types.length === 0 && schema.properties !== undefined) return "object";
  return "any";
}

/** Return an input with the required fields, for people to fill in. */
export function exampleOf(schema: Schema, root: Schema = schema, depth = 0): Json {
  const [first] = alternativesOf(resolveSchema(schema, root), root);
  const resolved = first ?? {};
  if (resolved.default !== undefined) return resolved.default;
  if (resolved.const !== undefined) return resolved.const;
  if (resolved.enum?.[0] !== undefined) return resolved.enum[0];
  if (depth > MAX_DEPTH) return null;
  switch (typeOf(resolved)) {
    case "object": {
      const required = resolved.required ?? [];
      const entries = required.map((name): [string, Json] => [name, exampleOf(resolved.properties?.[name] ?? {}, root, depth + 1)]);
      return Object.fromEntries(entries);
    }
    case "array":
      return [];
    case "integer":
    case "number":
      return resolved.minimum ?? 0;
    case "boolean":
      return false;
    case "string":
      return "";
    default:
      return null;
  }
}

/** Parse JSON that a person typed; say where it is wrong. */
export function parseJson(text: string): { value: Json; problem: string } {
  try {
    return { value: JSON.parse(text) as Json, problem: "" };
  } catch (error) {
    return { value: null, problem: `This is not valid JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
}

function findReference(root: Schema, reference: string): Schema | undefined {
  if (!reference.startsWith("#/")) return undefined;
  let current: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    if (typeof current !== "object" || current === null) return undefined;
    current = (current as Record<string, unknown>)[part.replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return current as Schema | undefined;
}
