import blankSpace from "ts-blank-space";

export const transformCell = (source) => ({ code: blankSpace(`async function __cell(){${source}\n}`, () => {}) });
