// Reads the `mappings` of a source map, as far as positions in one source need it.

const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function decodeVlq(segment) {
  const fields = [];
  let value = 0, shift = 0;
  for (const ch of segment) {
    const digit = BASE64.indexOf(ch);
    value |= (digit & 31) << shift;
    shift += 5;
    if (digit & 32) continue;
    fields.push(value & 1 ? -(value >> 1) : value >> 1);
    value = shift = 0;
  }
  return fields;
}

/** Answers a function (line, column) -> {line, column} from generated to source positions, both from 1. */
export function positionMapper(mappings) {
  let line = 0, column = 0;
  const lines = mappings.split(";").map((text) => {
    let generated = 0;
    const segments = [];
    for (const segment of text.split(",")) {
      if (segment === "") continue;
      const [dGenerated, , dLine, dColumn] = decodeVlq(segment);
      generated += dGenerated;
      if (dLine === undefined) continue;
      line += dLine;
      column += dColumn;
      segments.push({ generated, line, column });
    }
    return segments;
  });
  return (fromLine, fromColumn) => {
    for (let i = Math.min(fromLine, lines.length) - 1; i >= 0; i--) {
      const before = i === fromLine - 1 ? lines[i].filter((s) => s.generated <= fromColumn - 1) : lines[i];
      const found = before.at(-1) ?? (i === fromLine - 1 ? lines[i][0] : undefined);
      if (found) return { line: found.line + 1, column: found.column + 1 };
    }
    return { line: 1, column: 1 };
  };
}
