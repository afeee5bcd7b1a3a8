// Reads the corpus: each file is one cell, its first line says what is expected of it.
import { readdirSync, readFileSync } from "node:fs";

const ROOT = new URL("../", import.meta.url);

function read(folder, parseExpectation) {
  return readdirSync(new URL(`${folder}/`, ROOT))
    .filter((file) => file.endsWith(".ts"))
    .sort()
    .map((file) => {
      const source = readFileSync(new URL(`${folder}/${file}`, ROOT), "utf8");
      const first = source.slice(0, source.indexOf("\n"));
      return { name: file.replace(/\.ts$/, ""), source, lines: source.split("\n").length, ...parseExpectation(first) };
    });
}

export const corpus = {
  cells: read("cells", (first) => ({ expected: first.slice("// returns: ".length) })),
  broken: read("broken", (first) => {
    const [, line, column, kind] = /^\/\/ error: (\d+):(\d+)( \(checker\))?$/.exec(first);
    return { line: Number(line), column: Number(column), syntactic: !kind };
  }),
  modules: read("modules", () => ({})),
  positions: read("positions", (first) => ({ line: Number(first.slice("// throws-at: ".length)) })),
};
