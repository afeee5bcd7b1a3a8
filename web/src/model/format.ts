/** Numbers, times and values as short texts. */
import type { Json } from "../api/types";
import { isObject } from "./turn";

const MAX_SUMMARY = 120;
/** How the gateway marks a value that it has cut for the record. */
const CUT_MARK = /… \[[\d,]+ characters\]|\[[\d,]+ more (?:items|members)[^\]]*\]/;
const ANSI = /[\u001b\u009b](?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[[\]()#;?]*(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~])/g;
/** Controls, marks of direction, and characters without a width. Joiners are part of words and emoji. */
const CONTROLS =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

export function formatDuration(seconds: number): string {
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 999_500) return `${(bytes / 1000).toFixed(bytes < 9950 ? 1 : 0)} kB`;
  if (bytes < 999_500_000) return `${(bytes / 1_000_000).toFixed(1)} MB`;
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`;
}

// Made at first use, and then used again: making one takes a millisecond.
let clockFormat: Intl.DateTimeFormat | undefined;
let numberFormat: Intl.NumberFormat | undefined;

/** Return a whole number as `1,234`. */
export function formatNumber(number: number): string {
  if (number < 1000) return String(number);
  numberFormat ??= new Intl.NumberFormat("en-US");
  return numberFormat.format(number);
}

export function formatCount(count: number): string {
  if (count < 10_000) return formatNumber(count);
  if (count < 999_500) return `${(count / 1000).toFixed(count < 99_500 ? 1 : 0)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

export function formatClock(seconds: number): string {
  clockFormat ??= new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
  return clockFormat.format(seconds * 1000);
}

/** Return a time with the date, if it is not today. */
export function formatTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  const clock = formatClock(seconds);
  return date.toDateString() === new Date().toDateString() ? clock : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${clock}`;
}

/** Return a long time such as `50 s`, `12 min`, `3 h 5 min` or `4 d 2 h`. */
export function formatAge(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return the time that is left as `59:12`. */
export function formatTimeLeft(seconds: number): string {
  const left = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
}

/** Return text without the codes that terminals use for colours and titles. */
export function stripAnsi(text: string): string {
  return text.replace(ANSI, "");
}

/** Return text in which characters that are invisible, or change the direction of text, can be seen. */
export function showControls(text: string): string {
  return text.replace(CONTROLS, (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Return a value as text for people: a text as it is, everything else as indented JSON. */
export function formatValue(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/**
 * Characters that a person cannot see as what they are: controls and marks, spaces other than the plain one, and letters
 * and symbols that are drawn as nothing. The same as in the terminal.
 */
const INVISIBLE =
  /[\p{C}\u0085\u00a0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

/** Return an input as JSON in which nothing is invisible: it is still JSON, with escapes such as `\u202e`. */
export function formatInput(value: Json): string {
  return JSON.stringify(value, null, 2).replace(INVISIBLE, (character) => (character === "\n" ? character : escapeUnits(character)));
}

function escapeUnits(character: string): string {
  const units = character.split("").map((unit) => unit.charCodeAt(0));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

/** Return one line about an input or a result. */
export function summarize(value: Json): string {
  if (value === null) return "";
  if (typeof value === "string") return shorten(value);
  if (!isObject(value)) return shorten(JSON.stringify(value));
  const entries = Object.entries(value);
  const [only] = entries;
  if (entries.length === 1 && only !== undefined && typeof only[1] === "string") return shorten(only[1]);
  return shorten(entries.map(([key, part]) => `${key}: ${typeof part === "string" ? part : JSON.stringify(part)}`).join(", "));
}

/** Tell whether the record of a value is shorter than the value was. */
export function isCutValue(value: Json): boolean {
  if (typeof value === "string") return CUT_MARK.test(value);
  if (Array.isArray(value)) return value.some(isCutValue);
  return isObject(value) && Object.entries(value).some(([key, part]) => CUT_MARK.test(key) || isCutValue(part));
}

function shorten(text: string): string {
  const line = showControls(stripAnsi(text.slice(0, 4 * MAX_SUMMARY))).replace(/\s+/g, " ").trim();
  return line.length <= MAX_SUMMARY ? line : `${line.slice(0, MAX_SUMMARY - 1)}…`;
}
