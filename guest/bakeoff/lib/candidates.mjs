// The candidates. Each `load` gives a function source -> {code}, which throws {message, line, column} (both from 1).
//
// A cell is the body of an async function. `bare` candidates take it as it is; the others need the function around it,
// which is put on the first and after the last line so that line numbers stay.
import { createRequire } from "node:module";
import { positionMapper } from "./source-map.mjs";

const require = createRequire(import.meta.url);
const HEAD = "(async function(){";
const TAIL = "\n})";

class Refused extends Error {
  constructor(message, line, column) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

const versionOf = (name) => {
  for (const folder of require.resolve.paths(name)) {
    try {
      return require(`${folder}/${name}/package.json`).version;
    } catch {}
  }
  throw new Error(`${name} is not installed`);
};

/** The script that QuickJS evaluates; its value is the cell as a function. */
export function scriptOf(candidate, code) {
  return candidate.bare ? HEAD + code + TAIL : code;
}

const wrapped = (source) => HEAD + source + TAIL;
// A column on the first line is off by the head.
const unshift = (line, column) => [line, line === 1 ? Math.max(1, column - HEAD.length) : column];

const swcLike = (transformSync, options) => (source) => {
  try {
    return { code: transformSync(wrapped(source), options).code };
  } catch (e) {
    throw new Refused(e.message ?? String(e), ...unshift(e.startLine, (e.startColumn ?? 0) + 1));
  }
};

/** Strips where that is enough, which keeps lines and columns; else transforms, with a source map for positions. */
function swcStripElseTransform(source) {
  const { transformSync } = require("@swc/wasm-typescript");
  const text = wrapped(source);
  try {
    return { code: transformSync(text, { mode: "strip-only" }).code };
  } catch (e) {
    if (e.code !== "UnsupportedSyntax") throw new Refused(e.message ?? String(e), ...unshift(e.startLine, (e.startColumn ?? 0) + 1));
  }
  const { code, map } = transformSync(text, { mode: "transform", sourceMap: true });
  return { code, toSource: positionMapper(JSON.parse(map).mappings) };
}

function typescriptTransform() {
  const ts = require("typescript");
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, removeComments: false };
  return (source) => {
    const out = ts.transpileModule(wrapped(source), { compilerOptions, reportDiagnostics: true });
    const first = out.diagnostics?.[0];
    if (first) {
      const at = first.file.getLineAndCharacterOfPosition(first.start);
      throw new Refused(ts.flattenDiagnosticMessageText(first.messageText, " "), ...unshift(at.line + 1, at.character + 1));
    }
    return { code: out.outputText };
  };
}

async function blankSpaceTransform() {
  const ts = require("typescript");
  const { blankSourceFile } = await import("ts-blank-space");
  return (source) => {
    const file = ts.createSourceFile("cell.ts", wrapped(source), ts.ScriptTarget.ESNext, false, ts.ScriptKind.TS);
    const at = (pos) => {
      const { line, character } = file.getLineAndCharacterOfPosition(pos);
      return unshift(line + 1, character + 1);
    };
    const [first] = file.parseDiagnostics;
    if (first) throw new Refused(ts.flattenDiagnosticMessageText(first.messageText, " "), ...at(first.start));
    const unsupported = [];
    const code = blankSourceFile(file, (node) => unsupported.push(node));
    if (unsupported[0]) throw new Refused(`unsupported ${ts.SyntaxKind[unsupported[0].kind]}`, ...at(unsupported[0].getStart(file)));
    return { code };
  };
}

function sucraseTransform() {
  const { transform } = require("sucrase");
  const options = { transforms: ["typescript"], disableESTransforms: true, keepUnusedImports: true };
  return (source) => {
    try {
      return { code: transform(source, options).code };
    } catch (e) {
      throw new Refused(e.message, e.loc?.line, e.loc?.column);
    }
  };
}

function babelTransform() {
  const babel = require("@babel/standalone");
  const options = {
    filename: "cell.ts",
    presets: [["typescript", { onlyRemoveTypeImports: true }]],
    plugins: [["proposal-decorators", { version: "2023-11" }]],
    parserOpts: { allowReturnOutsideFunction: true },
    retainLines: true,
    configFile: false,
    babelrc: false,
    sourceType: "script",
  };
  return (source) => {
    try {
      return { code: babel.transform(wrapped(source), options).code };
    } catch (e) {
      throw new Refused(e.message, ...(e.loc ? unshift(e.loc.line, e.loc.column + 1) : []));
    }
  };
}

function esbuildTransform() {
  const esbuild = require("esbuild");
  const options = { loader: "ts", target: "es2022", logLevel: "silent", tsconfigRaw: { compilerOptions: { useDefineForClassFields: true } } };
  return (source) => {
    try {
      return { code: esbuild.transformSync(wrapped(source), options).code };
    } catch (e) {
      const at = e.errors?.[0]?.location;
      throw new Refused(e.errors?.[0]?.text ?? e.message, ...(at ? unshift(at.line, at.column + 1) : []));
    }
  };
}

function oxcTransform() {
  const { transformSync } = require("@oxc-transform/binding-wasm32-wasi");
  return (source) => {
    const text = wrapped(source);
    const out = transformSync("cell.ts", text, { lang: "ts", sourceType: "script", target: "es2022" });
    const first = out.errors[0];
    if (first) {
      const start = first.labels?.[0]?.start ?? 0;
      const before = Buffer.from(text).subarray(0, start).toString().split("\n");
      throw new Refused(first.message, ...unshift(before.length, before.at(-1).length + 1));
    }
    return { code: out.code };
  };
}

export const candidates = [
  { name: "sucrase", package: "sucrase", bare: true, load: sucraseTransform },
  { name: "sucrase, guarded", package: "sucrase", bare: true, load: async () => (await import("./bundle.mjs")).loadInNode("./sucrase-cell.mjs") },
  { name: "swc strip, else transform", package: "@swc/wasm-typescript", load: () => swcStripElseTransform },
  { name: "swc strip-only", package: "@swc/wasm-typescript", load: () => swcLike(require("@swc/wasm-typescript").transformSync, { mode: "strip-only" }) },
  { name: "swc transform", package: "@swc/wasm-typescript", load: () => swcLike(require("@swc/wasm-typescript").transformSync, { mode: "transform" }) },
  { name: "amaro strip-only", package: "amaro", load: () => swcLike(require("amaro").transformSync, { mode: "strip-only" }) },
  { name: "amaro transform", package: "amaro", load: () => swcLike(require("amaro").transformSync, { mode: "transform" }) },
  { name: "ts-blank-space", package: "ts-blank-space", load: blankSpaceTransform },
  { name: "typescript", package: "typescript", load: typescriptTransform },
  { name: "babel retainLines", package: "@babel/standalone", load: babelTransform },
  { name: "esbuild", package: "esbuild", load: esbuildTransform },
  { name: "oxc (wasm)", package: "@oxc-transform/binding-wasm32-wasi", load: oxcTransform },
].map((c) => ({ bare: false, ...c, version: () => versionOf(c.package) }));
