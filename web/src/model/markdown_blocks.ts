/** Markdown as a list of blocks, so that a growing text is parsed only at its end. */
import { Lexer, type Token } from "marked";

export interface Block {
  /** The Markdown of the block, with the blank lines after it. */
  source: string;
  /** The content of a fenced or indented code block; undefined for other blocks. */
  code: string | undefined;
  language: string;
  /** It only says where links lead. */
  isDefinition: boolean;
  /** It is shown as it is, because drawing it could take seconds. */
  isPlain: boolean;
}

export interface Blocks {
  text: string;
  blocks: readonly Block[];
  /** Link definitions, which apply to all blocks. */
  definitions: string;
}

export const NO_BLOCKS: Blocks = { text: "", blocks: [], definitions: "" };

/** Longer blocks are plain text. Parsing some texts of this length takes half a second, and grows with its square. */
const MAX_TABLE_CHARACTERS = 150_000;
const MAX_BLOCK_CHARACTERS = 40_000;
const MAX_PARAGRAPH_CHARACTERS = 15_000;
/** A block of this length is drawn again when it has grown by a tenth. */
const LONG_BLOCK_CHARACTERS = 20_000;

/** Tell whether a growing text should be drawn again; a long one costs more than its next words are worth. */
export function hasGrownEnough(text: string, previous: Blocks): boolean {
  const last = previous.blocks.at(-1)?.source.length ?? 0;
  return last < LONG_BLOCK_CHARACTERS || !text.startsWith(previous.text) || text.length - previous.text.length > last / 10;
}

/** Split a text into blocks. If it continues `previous`, the blocks before its last one are used again. */
export function splitBlocks(text: string, previous: Blocks = NO_BLOCKS): Blocks {
  const normal = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
  if (normal === previous.text) return previous;
  const extended = extendLongBlock(normal, previous);
  if (extended !== undefined) return extended;
  const reused = normal.startsWith(previous.text) ? previous.blocks.slice(0, -1) : [];
  const start = reused.reduce((sum, block) => sum + block.source.length, 0);
  const blocks = [...reused, ...parse(normal.slice(start))];
  const definitions = blocks.filter(({ isDefinition }) => isDefinition).map(({ source }) => source.trim());
  return { text: normal, blocks, definitions: definitions.join("\n") };
}

/** Return the blocks of a text that only continues the long last block; undefined for others. */
function extendLongBlock(text: string, previous: Blocks): Blocks | undefined {
  const last = previous.blocks.at(-1);
  if (last === undefined || !last.isPlain || !text.startsWith(previous.text)) return undefined;
  const added = text.slice(previous.text.length);
  if (/\n[ \t]*\n/.test(last.source.slice(-1) + added)) return undefined;
  return { ...previous, text, blocks: [...previous.blocks.slice(0, -1), { ...last, source: last.source + added }] };
}

const PLAIN_BLOCK: Block = { source: "", code: undefined, language: "", isDefinition: false, isPlain: false };

function parse(text: string): Block[] {
  const tokens = tokenize(text);
  // The blocks must make up the whole text: the next call continues after them.
  if (tokens.reduce((sum, token) => sum + token.raw.length, 0) !== text.length) {
    return [{ ...PLAIN_BLOCK, source: text, isPlain: true }];
  }
  const blocks: Block[] = [];
  for (const token of tokens) {
    const last = blocks.at(-1);
    if (token.type === "space" && last !== undefined) last.source += token.raw;
    else blocks.push(blockOf(token));
  }
  return blocks;
}

/** Return no tokens for a text that is nested so deeply that the parser cannot read it. */
function tokenize(text: string): Token[] {
  try {
    // Only blocks: what is inside of them is parsed when they are drawn.
    return new Lexer({ gfm: true }).blockTokens(text);
  } catch {
    return [];
  }
}

function blockOf(token: Token): Block {
  const { type, raw } = token;
  if (type !== "code") return { ...PLAIN_BLOCK, source: raw, isDefinition: type === "def", isPlain: isTooLong(type, raw) };
  const { text, lang } = token as { text: string; lang?: string };
  return { ...PLAIN_BLOCK, source: raw, code: text, language: (lang ?? "").trim().split(/\s/)[0] ?? "" };
}

/** Tell whether drawing a block could take long. Only tables are drawn line by line. */
function isTooLong(type: string, raw: string): boolean {
  if (raw.length <= MAX_PARAGRAPH_CHARACTERS) return false;
  if (type === "paragraph" || raw.length > MAX_TABLE_CHARACTERS || (type !== "table" && raw.length > MAX_BLOCK_CHARACTERS)) return true;
  return raw.split("\n").some((line) => line.length > MAX_PARAGRAPH_CHARACTERS);
}
