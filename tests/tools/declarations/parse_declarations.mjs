// Reads lines of JSON, each `[checksMeaning, texts]`, and prints a line for each: what the compiler
// says of each text. `checksMeaning` is for names and types as well, of each text by itself.

import { createInterface } from "node:readline";
import ts from "../../../tooling/peers/node_modules/typescript/lib/typescript.js";

// Only what declarations use: the real library takes seconds.
const LIBRARY = `
interface Array<T> { [index: number]: T } interface Promise<T> { value: T }
interface Boolean {} interface Number {} interface Object {} interface String {} interface RegExp {}
interface CallableFunction {} interface Function {} interface IArguments {} interface NewableFunction {}
`;
const library = parsed("library.d.ts", LIBRARY);
const options = { noLib: true, strict: true, types: [] };

function parsed(name, text) {
  return ts.createSourceFile(name, text, ts.ScriptTarget.Latest);
}

function meaningProblems(file) {
  const files = { "library.d.ts": library, "file.d.ts": file };
  const host = {
    getSourceFile: (name) => files[name],
    fileExists: (name) => name in files,
    readFile: () => undefined,
    getCanonicalFileName: (name) => name,
    getCurrentDirectory: () => "",
    getDefaultLibFileName: () => "library.d.ts",
    getNewLine: () => "\n",
    useCaseSensitiveFileNames: () => true,
    writeFile: () => {},
  };
  return ts.getPreEmitDiagnostics(ts.createProgram(Object.keys(files), options, host));
}

function problems(text, checksMeaning) {
  const file = parsed("file.d.ts", text);
  const isParsed = file.parseDiagnostics.length === 0;
  const found = checksMeaning && isParsed ? meaningProblems(file) : file.parseDiagnostics;
  return found.map((problem) => ts.flattenDiagnosticMessageText(problem.messageText, " "));
}

for await (const line of createInterface({ input: process.stdin })) {
  const [checksMeaning, texts] = JSON.parse(line);
  console.log(JSON.stringify(texts.map((text) => problems(text, checksMeaning))));
}
