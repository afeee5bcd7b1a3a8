import babel from "@babel/standalone";

const options = { filename: "cell.ts", presets: ["typescript"], retainLines: true, configFile: false, babelrc: false, sourceType: "script" };
export const transformCell = (source) => ({ code: babel.transform(`async function __cell(){${source}\n}`, options).code });
