// The loop of a driver in JavaScript: one JSON line per request, one per response.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const AT_ONCE = 32;
const EXPECTED = { trivial: 2, one_call: 3, sequence: 100, parallel: 16, loop: 12499997500000, suspend: 2 };
export const QUERY = "create an invoice for a customer";
export const PROGRAMS = {
  trivial: "return 1+1",
  one_call: "return await tools.add({a: 1, b: 2})",
  sequence: "let s = 0; for (let i = 0; i < 100; i++) { s = await tools.add({a: s, b: 1}) } return s",
  parallel: "const all = await Promise.all(Array.from({length: 16}, (_, n) => tools.slow({n}))); return all.length",
  loop: "let s = 0; for (let i = 0; i < 5000000; i++) { s += i } return s",
};

export const add = (a, b) => a + b;
export const slow = (n) => new Promise((resolve) => setTimeout(() => resolve(n), 10));

/** The name, description and schema of a generated tool; as in serve.py. */
export function generatedTool(number) {
  const verbs = ["create", "list", "delete", "update", "send", "export", "archive", "find"];
  const things = ["invoice", "customer", "ticket", "branch", "event", "payment", "report", "file"];
  const verb = verbs[number % 8];
  const thing = things[Math.floor(number / 8) % 8];
  const place = Math.floor(number / 64);
  return {
    name: `${verb}_${thing}_${place}`,
    description: `Use it to ${verb} one ${thing} of workspace ${place} by its id.`,
    schema: {
      type: "object",
      properties: {
        id: { type: "string", description: `The id of the ${thing}.` },
        limit: { type: "integer", description: "The largest number of results." },
      },
      required: ["id"],
    },
  };
}

// Standard output is for responses. UTCP writes two lines for each call.
console.log = console.info = () => {};

/**
 * Serve requests. `open(toolCount)` resolves to `{ run(work), search?(), suspend?(), reasons?, close?() }`,
 * as `Driver` in serve.py.
 */
export async function serve(open) {
  const { values } = parseArgs({ options: { tools: { type: "string", default: "2" }, cold: { type: "boolean" } } });
  const driver = await open(Number(values.tools));
  if (values.cold) {
    await check(driver, "trivial");
    say({ ready: true });
    process.exit(0);
  }
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const { work, times } = JSON.parse(line);
    try {
      say(await answer(driver, work, times));
    } catch (error) {
      say({ error: String(error?.stack ?? error).slice(0, 500) });
    }
  }
  process.exit(0);
}

async function answer(driver, work, times) {
  const reason = driver.reasons?.[work];
  if (reason) return { skip: reason };
  const walls = [];
  for (let n = 0; n < times; n++) {
    const started = performance.now();
    await check(driver, work);
    walls.push(performance.now() - started);
  }
  return { walls };
}

async function check(driver, work) {
  if (work === "many") {
    const values = await Promise.all(Array.from({ length: AT_ONCE }, () => driver.run("trivial")));
    if (values.some((value) => value !== 2)) throw new Error(`many returned ${values}`);
    return;
  }
  if (work === "search") {
    if (!(await driver.search())) throw new Error("the search found nothing");
    return;
  }
  const value = work === "suspend" ? await driver.suspend() : await driver.run(work);
  if (value !== EXPECTED[work]) throw new Error(`${work} returned ${JSON.stringify(value)}, not ${EXPECTED[work]}`);
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
