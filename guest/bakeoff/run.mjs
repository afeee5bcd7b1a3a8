// Compares TypeScript transforms on the corpus: `node run.mjs [--only name] [--details]`.
import { candidates, scriptOf } from "./lib/candidates.mjs";
import { corpus } from "./lib/corpus.mjs";
import { runInQuickJs } from "./lib/quickjs.mjs";

const args = process.argv.slice(2);
const only = args.includes("--only") ? args[args.indexOf("--only") + 1] : undefined;
const details = args.includes("--details");

const attempt = (transform, source) => {
  try {
    return transform(source);
  } catch (e) {
    return { refused: e.message.split("\n")[0], line: e.line, column: e.column };
  }
};

/** Runs transformed code; positions are those of the cell. */
async function run(candidate, out) {
  const result = await runInQuickJs(scriptOf(candidate, out.code));
  return out.toSource && result.line ? { ...result, ...out.toSource(result.line, result.column) } : result;
}

async function judge(candidate, transform) {
  const score = { right: 0, wrong: [], refused: [], sameLines: 0, positions: 0, brokenOk: 0, brokenLate: 0, brokenOther: [], brokenMissed: [], modules: {} };
  for (const cell of corpus.cells) {
    const out = attempt(transform, cell.source);
    if (out.refused) {
      score.refused.push(`${cell.name}: ${out.line}:${out.column} ${out.refused}`);
      continue;
    }
    const result = await run(candidate, out);
    if (result.value === cell.expected) score.right += 1;
    else score.wrong.push(`${cell.name}: ${result.error ? `${result.error} at ${result.line}:${result.column}` : result.value}`);
    const lines = out.code.replace(/\n+$/, "").split("\n").length;
    const expectedLines = cell.source.replace(/\n+$/, "").split("\n").length + (candidate.bare ? 0 : 1 + (cell.source.endsWith("\n") ? 1 : 0));
    if (lines === expectedLines) score.sameLines += 1;
  }
  for (const cell of corpus.positions) {
    const out = attempt(transform, cell.source);
    const result = out.refused ? {} : await run(candidate, out);
    if (result.line === cell.line) score.positions += 1;
    else score.wrong.push(`${cell.name}: thrown at ${result.line}, expected ${cell.line} ${out.refused ?? result.error ?? ""}`);
  }
  for (const cell of corpus.broken) {
    let out = attempt(transform, cell.source);
    const late = !out.refused;
    if (late) {
      const result = await run(candidate, out);
      out = result.syntax ? { refused: result.error, line: result.line, column: result.column } : { ran: result.value ?? result.error };
    }
    if (!out.refused) score.brokenMissed.push(`${cell.name}: ran: ${out.ran}`);
    else if (out.line === cell.line) score[late ? "brokenLate" : "brokenOk"] += 1;
    else score.brokenOther.push(`${cell.name}: ${out.line}:${out.column} for ${cell.line}:${cell.column}${late ? " (QuickJS)" : ""} ${out.refused}`);
  }
  for (const cell of corpus.modules) {
    const out = attempt(transform, cell.source);
    const result = out.refused ? undefined : await run(candidate, out);
    const kind = out.refused ? "refused" : result.error ? "QuickJS" : "ran";
    (score.modules[kind] ??= []).push(`${cell.name}: ${out.refused ?? result.error ?? result.value} ${out.line ?? result?.line}`);
  }
  return score;
}

const rows = [];
for (const candidate of candidates) {
  if (only && !candidate.name.includes(only)) continue;
  let transform, version;
  try {
    version = candidate.version();
    transform = await candidate.load();
  } catch (e) {
    console.error(`${candidate.name}: not run (${e.message.split("\n")[0]})`);
    continue;
  }
  const s = await judge(candidate, transform);
  rows.push({
    candidate: candidate.name, version,
    right: s.right, refused: s.refused.length, wrong: corpus.cells.length - s.right - s.refused.length,
    "lines kept": s.sameLines, "throw line": s.positions,
    "syntax error": `${s.brokenOk}+${s.brokenLate}`, "other line": s.brokenOther.length, missed: s.brokenMissed.length,
    "modules refused": `${s.modules.refused?.length ?? 0}+${s.modules.QuickJS?.length ?? 0}`, "modules ran": s.modules.ran?.length ?? 0,
  });
  if (details) console.log(JSON.stringify({ candidate: candidate.name, ...s }, null, 1));
}
console.log(`${corpus.cells.length} cells, ${corpus.positions.length} throw positions, ${corpus.broken.length} broken, ${corpus.modules.length} module cells`);
console.table(rows);
process.exit(0);
