// TypeScript cell -> JavaScript with sucrase's parser and TypeScript transformer, in one parse, without its CLI-facing
// `transform`. Adds what a cell needs and sucrase leaves out:
//   - refuses what sucrase would silently drop or pass on: import/export (type-only too), namespaces with values,
//     decorators, `accessor`;
//   - pads erased types with spaces, so columns stay as well as lines;
//   - puts a `;` where erasing a type would join two statements.
// Needs a bundler: sucrase's ES modules import each other without extensions.
import { HelperManager } from "sucrase/dist/esm/HelperManager.js";
import NameManager from "sucrase/dist/esm/NameManager.js";
import { parse } from "sucrase/dist/esm/parser/index.js";
import { ContextualKeyword as kw } from "sucrase/dist/esm/parser/tokenizer/keywords.js";
import { TokenType as tt } from "sucrase/dist/esm/parser/tokenizer/types.js";
import TokenProcessor from "sucrase/dist/esm/TokenProcessor.js";
import RootTransformer from "sucrase/dist/esm/transformers/RootTransformer.js";
import TypeScriptTransformer from "sucrase/dist/esm/transformers/TypeScriptTransformer.js";

const TRANSFORMS = ["typescript"];
const OPTIONS = { transforms: TRANSFORMS, disableESTransforms: true, keepUnusedImports: true };

/** A refusal with the line and column (both from 1) of what is refused. */
export class CellSyntaxError extends Error {
  constructor(message, line, column) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

/** Collects the names in use only when a new name is needed. */
class LazyNameManager {
  constructor(source, tokens) {
    this.make = () => new NameManager(source, tokens);
  }

  claimFreeName(name) {
    return (this.names ??= this.make()).claimFreeName(name);
  }
}

class CellTokenProcessor extends TokenProcessor {
  /** Copies the tokens up to `end` with all between them. */
  copyTokensUpTo(end) {
    this.resultCode += this.code.slice(this.tokenIndex > 0 ? this.tokens[this.tokenIndex - 1].end : 0, this.tokens[end - 1].end);
    this.tokenIndex = end;
  }

  removeInitialToken() {
    this.blankToken(this.previousWhitespaceAndComments());
  }

  removeToken() {
    this.blankToken(this.previousWhitespaceAndComments().replace(/[^\r\n]/g, " "));
  }

  blankToken(before) {
    const { start, end } = this.tokens[this.tokenIndex];
    const text = this.code.slice(start, end);
    const blank = text.includes("\n") ? text.replace(/[^\r\n]/g, " ") : " ".repeat(end - start);
    this.resultCode += before + (this.semicolonAfter.has(this.tokenIndex) ? `;${blank.slice(1)}` : blank);
    this.tokenIndex++;
  }
}

const MODIFIERS = new Set([tt._class, tt._public, tt._protected, tt._private, tt._abstract, tt._readonly, tt._override, tt.nonNullAssertion, tt._enum]);

/** Whether sucrase has something to do at this token; all other tokens are copied. */
function isSpecial(tokens, i) {
  const token = tokens[i];
  if (token.isType) return true;
  const { type } = token;
  // All keyword-like types TypeScript cares about are above this one; names and punctuation are below.
  if (type >= tt.nonNullAssertion) {
    return MODIFIERS.has(type) || (type === tt._const && tokens[i + 1].type === tt._enum) || (type === tt._async && tokens[i + 1].isType);
  }
  return (type === tt.parenR || (type === tt.name && token.contextualKeyword === kw._async)) && tokens[i + 1].isType;
}

/** sucrase's transformer with TypeScript only, copying runs of ordinary tokens at once. */
class CellTransformer extends RootTransformer {
  constructor(context) {
    super(context, TRANSFORMS, false, OPTIONS);
    // The other transformer is for imports and exports, which never get here.
    this.transformers = this.transformers.filter((t) => t instanceof TypeScriptTransformer);
  }

  processToken() {
    const { tokens, tokenIndex } = this.tokens;
    if (isSpecial(tokens, tokenIndex)) super.processToken();
    else this.tokens.copyTokensUpTo(tokenIndex + 1);
  }

  processBalancedCode() {
    const processor = this.tokens;
    const { tokens } = processor;
    let braceDepth = 0;
    let parenDepth = 0;
    while (processor.tokenIndex < tokens.length) {
      let i = processor.tokenIndex;
      let closed = false;
      for (; i < tokens.length; i++) {
        const { type } = tokens[i];
        if (type === tt.braceL || type === tt.dollarBraceL) braceDepth++;
        else if (type === tt.parenL) parenDepth++;
        else if (type === tt.braceR && braceDepth-- === 0) closed = true;
        else if (type === tt.parenR && parenDepth-- === 0) closed = true;
        if (closed || isSpecial(tokens, i)) break;
      }
      if (i > processor.tokenIndex) processor.copyTokensUpTo(i);
      if (closed) return;
      if (i < tokens.length) super.processToken();
    }
  }
}

function fail(source, index, message) {
  const before = source.slice(0, index).split("\n");
  throw new CellSyntaxError(message, before.length, before[before.length - 1].length + 1);
}

const hasNewline = (source, from, to) => {
  const at = source.indexOf("\n", from);
  return at !== -1 && at < to;
};

// Tokens that would continue the statement before an erased one.
const CONTINUES_AFTER_STATEMENT = new Set([tt.parenL, tt.bracketL, tt.backQuote, tt.plus, tt.minus, tt.slash, tt.regexp, tt.star]);
// Tokens that end `x as T` in TypeScript and would continue `x` in JavaScript.
const CONTINUES_AFTER_CAST = new Set([tt.parenL, tt.bracketL, tt.backQuote]);
const RESTRICTED = new Set([tt._return, tt._throw, tt._yield]);

/** Whether the type token at `i` begins an erased declaration (`type A`, `interface A`, `declare const a`, ...). */
function beginsDeclaration(tokens, i) {
  const token = tokens[i];
  if (token.type === tt._declare || token.type === tt._abstract) return true;
  const keyword = token.contextualKeyword;
  if (keyword !== kw._interface && keyword !== kw._type && keyword !== kw._namespace && keyword !== kw._module) return false;
  const next = tokens[i + 1];
  return next.isType && (next.type === tt.name || next.type === tt.string);
}

/** The token after the `}` that closes the first `{` at or after `i`. */
function afterBlock(tokens, i) {
  while (tokens[i].type !== tt.braceL) i++;
  let depth = 0;
  for (; i < tokens.length; i++) {
    const { type } = tokens[i];
    if (type === tt.braceL || type === tt.dollarBraceL) depth++;
    else if (type === tt.braceR && --depth === 0) return i + 1;
  }
  return tokens.length - 1;
}

/** Whether a namespace's body holds types only: parsed on its own without `export`, every token is a type. */
function isTypesOnly(source, tokens, from, to) {
  let open = from;
  while (tokens[open].type !== tt.braceL) open++;
  let body = source.slice(tokens[open].end, tokens[to - 1].start);
  for (let i = to - 1; i > open; i--) {
    if (tokens[i].type !== tt._export) continue;
    const at = tokens[i].start - tokens[open].end;
    body = body.slice(0, at) + "      " + body.slice(at + 6);
  }
  const inner = parse(body, false, true, false).tokens;
  for (let i = 0; i < inner.length - 1; i++) {
    if (!inner[i].isType && inner[i].type !== tt.semi) return false;
    if (isNamespace(inner, i)) {
      const end = afterBlock(inner, i);
      if (!isTypesOnly(body, inner, i, end)) return false;
      i = end - 1;
    }
  }
  return true;
}

function isNamespace(tokens, i) {
  const token = tokens[i];
  if (!token.isType || (token.contextualKeyword !== kw._namespace && token.contextualKeyword !== kw._module)) return false;
  const next = tokens[i + 1], afterNext = tokens[i + 2];
  return next.isType && next.type === tt.name && (afterNext.type === tt.braceL || afterNext.type === tt.dot);
}

/** Refuses what a cell may not hold; answers the erased tokens that need a `;` in their place. */
function inspect(source, tokens) {
  const semicolonAfter = new Set();
  let runStart = -1;
  let runDeclares = false;
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    const { type } = token;
    if (type === tt._import) {
      const next = tokens[i + 1].type;
      if (next !== tt.parenL && next !== tt.dot) fail(source, token.start, "`import` is not available in a cell");
    } else if (type === tt._export) {
      fail(source, token.start, "`export` is not available in a cell");
    } else if (type === tt.at) {
      fail(source, token.start, "decorators are not supported");
    } else if (token.contextualKeyword === kw._accessor && !token.isType && token.identifierRole !== null) {
      const next = tokens[i + 1];
      if ((next.type === tt.name || next.type === tt.hash || next.type === tt.string) && !hasNewline(source, token.end, next.start)) {
        fail(source, token.start, "`accessor` fields are not supported; write a getter and a setter");
      }
    }
    if (!token.isType) {
      if (runStart !== -1) {
        const first = tokens[runStart], last = tokens[i - 1];
        if (runDeclares ? CONTINUES_AFTER_STATEMENT.has(type)
          : first.type !== tt.lessThan && first.type !== tt.typeParameterStart && CONTINUES_AFTER_CAST.has(type) && hasNewline(source, last.end, token.start)) {
          semicolonAfter.add(i - 1);
        }
        if (runStart > 0 && RESTRICTED.has(tokens[runStart - 1].type) && hasNewline(source, tokens[runStart - 1].end, token.start)) {
          fail(source, first.start, "a line break in the types after `return`, `throw` or `yield` is not supported");
        }
        runStart = -1;
      }
      continue;
    }
    const starts = runStart === -1;
    if (starts) {
      runStart = i;
      runDeclares = false;
    }
    if (beginsDeclaration(tokens, i) && (starts || hasNewline(source, tokens[i - 1].end, token.start))) {
      runDeclares = true;
      const declared = type === tt._declare;
      const at = declared ? i + 1 : i;
      if (isNamespace(tokens, at) || (declared && (tokens[at].contextualKeyword === kw._module || tokens[at].contextualKeyword === kw._global))) {
        const end = afterBlock(tokens, at);
        if (!declared && !isTypesOnly(source, tokens, at, end)) {
          fail(source, token.start, "a namespace with values is not supported; use an object or a class with static members");
        }
        i = end - 1;
      }
    }
  }
  return semicolonAfter;
}

/** Answers {code}; throws CellSyntaxError. */
export function transformCell(source) {
  let tokens;
  try {
    ({ tokens } = parse(source, false, true, false));
  } catch (e) {
    if (e.loc === undefined) throw e;
    throw new CellSyntaxError(e.message.replace(/ \(\d+:\d+\)$/, ""), e.loc.line, e.loc.column);
  }
  const semicolonAfter = inspect(source, tokens);
  const nameManager = new LazyNameManager(source, tokens);
  const helperManager = new HelperManager(nameManager);
  const tokenProcessor = new CellTokenProcessor(source, tokens, false, true, helperManager);
  tokenProcessor.semicolonAfter = semicolonAfter;
  const context = { tokenProcessor, scopes: [], nameManager, importProcessor: null, helperManager };
  return { code: new CellTransformer(context).transform().code };
}
