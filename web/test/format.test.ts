import assert from "node:assert/strict";
import test from "node:test";

import { findCommands } from "../src/model/commands";
import { formatBytes, formatDuration, formatInput, isCutValue, showControls, stripAnsi, summarize } from "../src/model/format";
import { rankChoices } from "../src/model/palette";
import { readQuestions } from "../src/model/questions";
import { groupByDay } from "../src/model/session_list";

test("durations and sizes are short", () => {
  assert.deepEqual([0, 0.0123, 1.26, 59.97, 75, 7325].map(formatDuration), ["0 ms", "12 ms", "1.3 s", "1 min 0 s", "1 min 15 s", "2 h 2 min"]);
  assert.deepEqual([12, 1480, 45_200, 1_500_000].map(formatBytes), ["12 B", "1.5 kB", "45 kB", "1.5 MB"]);
});

test("codes of terminals are removed, and hidden characters are shown", () => {
  assert.equal(stripAnsi("\u001b[31mred\u001b[0m \u001b]0;title\u0007text"), "red text");
  assert.equal(showControls("a\u202eb\u2066c\td\n"), "a⟨U+202E⟩b⟨U+2066⟩c\td\n");
});

test("nothing in an input is invisible, and it stays the same JSON", () => {
  const input = { "a\u202eb": "x\u3164y\u2028\u{e0101}\u009b1m\u00a0\ufe0f", text: "two\nlines, é and \u{1f600}" };
  const shown = formatInput(input);
  assert.equal(shown, '{\n  "a\\u202eb": "x\\u3164y\\u2028\\udb40\\udd01\\u009b1m\\u00a0\\ufe0f",\n  "text": "two\\nlines, é and \u{1f600}"\n}');
  assert.deepEqual(JSON.parse(shown), input);
});

test("a value is one line, and a cut one is recognised", () => {
  assert.equal(summarize({ path: "a\n b" }), "a b");
  assert.equal(summarize({ path: "a", n: 1 }), "path: a, n: 1");
  assert.equal(summarize("x".repeat(500)).length, 120);
  assert.ok(isCutValue({ a: ["start… [9,000 characters]"] }));
  assert.ok(!isCutValue({ a: ["start… and more"] }));
});

test("commands and choices that begin with the text come first", () => {
  const commands = ["new", "renew", "help"].map((name) => ({ name, description: "" }));
  assert.deepEqual(findCommands(commands, "NE").map(({ name }) => name), ["new", "renew"]);
  assert.deepEqual(rankChoices([{ label: "a catalog" }, { label: "Catalog" }, { label: "x" }], "cat").map(({ label }) => label), ["Catalog", "a catalog"]);
});

test("questions of an agent are read leniently", () => {
  assert.deepEqual(readQuestions([{ id: "q", question: "Which?", options: [{ label: "A", description: "first" }, "B"] }]), [
    { id: "q", text: "Which?", options: [{ label: "A", description: "first" }, { label: "B", description: "" }] },
  ]);
  assert.deepEqual(readQuestions("text"), []);
});

test("sessions are grouped by day", () => {
  const now = new Date(2026, 10, 18, 12).getTime() / 1000;
  const session = { agentId: "", key: "", title: "", channel: "", sender: "", createdAt: 0, turnCount: 0, messageCount: 0 };
  const sessions = [now, now - 86_400, now - 86_400 * 3, now - 86_400 * 90].map((updatedAt, index) => ({ ...session, id: String(index), updatedAt }));
  assert.deepEqual(groupByDay(sessions, now).map(({ title }) => title), ["Today", "Yesterday", "Last 7 days", "Older"]);
});
