/** Markdown as a list of blocks, so that a growing text is parsed only at its end. */
import { type Token, marked } from "marked";

export interface Block {
  /** The Markdown of the block, with the blank lines after it. */
  source: string;
  /** The content of a fenced or indented code block; undefined for other blocks. */
  code: string | undefined;
  language: string;
  /** It only says where links lead. */
  isDefinition: boolean;
}

export interface Blocks {
  text: string;
  blocks: readonly Block[];
  /** Link definitions, which apply to all blocks. */
  definitions: string;
}

export const NO_BLOCKS: Blocks = { text: "", blocks: [], definitions: "" };

/** Split a text into blocks. If it continues `previous`, the blocks before its last one are used again. */
export function splitBlocks(text: string, previous: Blocks = NO_BLOCKS): Blocks {
  const normal = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
  if (normal === previous.text) return previous;
  const reused = normal.startsWith(previous.text) ? previous.blocks.slice(0, -1) : [];
  const start = reused.reduce((sum, block) => sum + block.source.length, 0);
  const blocks = [...reused, ...parse(normal.slice(start))];
  const definitions = blocks.filter(({ isDefinition }) => isDefinition).map(({ source }) => source.trim());
  return { text: normal, blocks, definitions: definitions.join("\n") };
}

function parse(text: string): Block[] {
  const tokens = marked.lexer(text, { gfm: true });
  // The blocks must make up the whole text: the next call continues after them.
  if (tokens.reduce((sum, token) => sum + token.raw.length, 0) !== text.length) {
    return [{ source: text, code: undefined, language: "", isDefinition: false }];
  }
  const blocks: Block[] = [];
  for (const token of tokens) {
    const last = blocks.at(-1);
    if (token.type === "space" && last !== undefined) last.source += token.raw;
    else blocks.push(blockOf(token));
  }
  return blocks;
}

function blockOf(token: Token): Block {
  if (token.type !== "code") return { source: token.raw, code: undefined, language: "", isDefinition: token.type === "def" };
  const { text, lang } = token as { text: string; lang?: string };
  return { source: token.raw, code: text, language: (lang ?? "").trim().split(/\s/)[0] ?? "", isDefinition: false };
}
