// returns: [12,-4,"unexpected End at 3"]
enum TokenKind { Number, Ident, Op, LParen, RParen, End }
interface Token { kind: TokenKind; text: string; pos: number }
type Expr =
  | { type: "num"; value: number }
  | { type: "var"; name: string }
  | { type: "bin"; op: string; left: Expr; right: Expr };

function* tokenize(src: string): Generator<Token> {
  const re = /\s*(?:(\d+(?:\.\d+)?)|([a-z]\w*)|([-+*\/])|(\()|(\)))/giy;
  let m: RegExpExecArray | null;
  while (re.lastIndex < src.length && (m = re.exec(src))) {
    const kind: TokenKind =
      m[1] !== undefined ? TokenKind.Number
      : m[2] !== undefined ? TokenKind.Ident
      : m[3] !== undefined ? TokenKind.Op
      : m[4] !== undefined ? TokenKind.LParen
      : TokenKind.RParen;
    yield { kind, text: m[0]!.trim(), pos: m.index };
  }
  yield { kind: TokenKind.End, text: "", pos: src.length };
}

class Parser {
  private readonly tokens: Token[];
  private i = 0;
  constructor(src: string) { this.tokens = [...tokenize(src)]; }
  private get cur(): Token { return this.tokens[this.i]!; }
  private eat(): Token { return this.tokens[this.i++]!; }
  parse(minPrec: number = 0): Expr {
    let left = this.atom();
    const prec: Readonly<Record<string, number>> = { "+": 1, "-": 1, "*": 2, "/": 2 };
    while (this.cur.kind === TokenKind.Op && prec[this.cur.text]! > minPrec) {
      const op = this.eat().text;
      left = { type: "bin", op, left, right: this.parse(prec[op]!) };
    }
    return left;
  }
  private atom(): Expr {
    const t = this.eat();
    if (t.kind === TokenKind.Number) return { type: "num", value: Number(t.text) };
    if (t.kind === TokenKind.Ident) return { type: "var", name: t.text };
    if (t.kind === TokenKind.LParen) { const e = this.parse(); this.eat(); return e; }
    throw new SyntaxError(`unexpected ${TokenKind[t.kind]} at ${t.pos}`);
  }
}

const evaluate = (e: Expr, env: Record<string, number>): number => {
  if (e.type === "num") return e.value;
  if (e.type === "var") return env[e.name] ?? NaN;
  const l = evaluate(e.left, env), r = evaluate(e.right, env);
  return e.op === "+" ? l + r : e.op === "-" ? l - r : e.op === "*" ? l * r : l / r;
};
let error = "";
try { new Parser("2 +").parse(); } catch (err) { error = (err as SyntaxError).message; }
return [evaluate(new Parser("2 * (x + 3) - 8 / 4").parse(), { x: 4 }), evaluate(new Parser("1-2-3").parse(), {}), error];
