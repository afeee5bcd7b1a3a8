/** Highlighting of source code. */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import diff from "highlight.js/lib/languages/diff";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import typescript from "highlight.js/lib/languages/typescript";

import { showControls } from "../model/format";

/** Longer code takes too long for one frame. */
const MAX_CHARACTERS = 30_000;

for (const [name, language] of Object.entries({ bash, diff, javascript, json, python, typescript })) {
  hljs.registerLanguage(name, language);
}
hljs.registerAliases(["console"], { languageName: "bash" });

/** Return the code as HTML, with nothing in it that the code could have injected. */
export function highlight(code: string, language: string): string {
  const shown = showControls(code);
  if (shown.length <= MAX_CHARACTERS && hljs.getLanguage(language) !== undefined) {
    return hljs.highlight(shown, { language, ignoreIllegals: true }).value;
  }
  return shown.replace(/[&<>]/g, (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[character] ?? character);
}
