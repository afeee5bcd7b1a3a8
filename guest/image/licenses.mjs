/** Collects the licences of the packages in the assets. */
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const GUEST = new URL("../", import.meta.url);
// Used to build the assets, but not part of them.
const BUILD_TOOLS = new Set(["binaryen", "esbuild"]);
const LICENSE_FILE = /^licen[cs]e/i;
const RULE = "=".repeat(78);

/** Return the licence texts of all packages except the build tools and their dependencies. */
export async function licenseTexts(root = GUEST) {
  const packages = new Map();
  const { dependencies } = await readPackage(root);
  await collect(Object.keys(dependencies).filter((name) => !BUILD_TOOLS.has(name)), packages, root);
  const names = [...packages.keys()].sort();
  const sections = names.map((name) => `${RULE}\n${packages.get(name)}\n`);
  return `Software of others inside the files of this folder, and its licences.\n\n${sections.join("\n")}`;
}

async function collect(names, packages, root) {
  for (const name of names) {
    if (packages.has(name)) continue;
    const folder = new URL(`node_modules/${name}/`, root);
    const { version, license, dependencies = {} } = await readPackage(folder);
    packages.set(name, `${name} ${version} (${license})\n${RULE}\n\n${await readLicense(folder)}`);
    await collect(Object.keys(dependencies), packages, root);
  }
}

async function readPackage(folder) {
  return JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
}

async function readLicense(folder) {
  const files = (await readdir(folder)).filter((file) => LICENSE_FILE.test(file)).sort();
  if (files.length === 0) throw new Error(`there is no licence file in ${fileURLToPath(folder)}`);
  const texts = await Promise.all(files.map((file) => readFile(new URL(file, folder), "utf8")));
  return texts.map((text) => text.replaceAll("\r\n", "\n").trim()).join("\n\n");
}
