/** Bundles the tests and runs them with Node's test runner: `npm test`. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const outdir = mkdtempSync(join(tmpdir(), "nacre-web-test-"));
try {
  const names = readdirSync(here(".")).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: names.map((name) => here(name)),
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    jsx: "automatic",
    jsxImportSource: "preact",
    sourcemap: "inline",
  });
  const bundles = names.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
  process.exitCode = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...bundles], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(outdir, { recursive: true });
}
