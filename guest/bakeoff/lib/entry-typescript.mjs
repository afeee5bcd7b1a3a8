import ts from "typescript";

const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
export const transformCell = (source) => ({ code: ts.transpileModule(`async function __cell(){${source}\n}`, { compilerOptions }).outputText });
