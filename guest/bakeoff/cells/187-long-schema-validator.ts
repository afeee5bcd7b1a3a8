// returns: [[{"path":"$.name","message":"shorter than 2"},{"path":"$.age","message":"out of range"},{"path":"$.role","message":"not one of admin|user"},{"path":"$.tags[1]","message":"expected string"}],[],[{"path":"$.name","message":"required"},{"path":"$.tags","message":"required"}]]
type Schema =
  | { type: "string"; minLength?: number; enum?: readonly string[] }
  | { type: "number"; min?: number; max?: number }
  | { type: "boolean" }
  | { type: "array"; items: Schema }
  | { type: "object"; properties: Record<string, Schema>; required?: readonly string[] };

interface Issue { path: string; message: string }

function validate(value: unknown, schema: Schema, path = "$"): Issue[] {
  const issue = (message: string): Issue[] => [{ path, message }];
  switch (schema.type) {
    case "string":
      if (typeof value !== "string") return issue("expected string");
      if (schema.minLength !== undefined && value.length < schema.minLength) return issue(`shorter than ${schema.minLength}`);
      if (schema.enum && !schema.enum.includes(value)) return issue(`not one of ${schema.enum.join("|")}`);
      return [];
    case "number":
      if (typeof value !== "number" || Number.isNaN(value)) return issue("expected number");
      return value < (schema.min ?? -Infinity) || value > (schema.max ?? Infinity) ? issue("out of range") : [];
    case "boolean":
      return typeof value === "boolean" ? [] : issue("expected boolean");
    case "array":
      return Array.isArray(value)
        ? (value as unknown[]).flatMap((v, i) => validate(v, schema.items, `${path}[${i}]`))
        : issue("expected array");
    case "object": {
      if (value === null || typeof value !== "object") return issue("expected object");
      const obj = value as Record<string, unknown>;
      const missing = (schema.required ?? []).filter((k) => !(k in obj)).map((k): Issue => ({ path: `${path}.${k}`, message: "required" }));
      const nested = Object.entries(schema.properties)
        .filter(([k]) => k in obj)
        .flatMap(([k, s]) => validate(obj[k], s, `${path}.${k}`));
      return [...missing, ...nested];
    }
  }
}

const schema = {
  type: "object",
  required: ["name", "tags"],
  properties: {
    name: { type: "string", minLength: 2 },
    age: { type: "number", min: 0 },
    role: { type: "string", enum: ["admin", "user"] },
    tags: { type: "array", items: { type: "string" } },
  },
} as const satisfies Schema;
return [validate({ name: "x", age: -1, role: "root", tags: ["a", 1] }, schema), validate({ name: "ok", tags: [] }, schema), validate({}, schema)];
