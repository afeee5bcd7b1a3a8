/** Sessions as a list for people. */
import type { SessionInfo } from "../api/types";
import { showControls } from "./format";

const DAY_SECONDS = 86_400;

/** Return the sessions with newer ones in place of their older versions. */
export function mergeSessions(known: ReadonlyMap<string, SessionInfo>, changed: readonly SessionInfo[]): Map<string, SessionInfo> {
  const merged = new Map(known);
  for (const session of changed) merged.set(session.id, { ...merged.get(session.id), ...session });
  return merged;
}

/** Return what to call a session. */
export function sessionTitle(session: SessionInfo): string {
  return showControls(session.title || session.key || "New session");
}

export interface SessionGroup {
  title: string;
  sessions: SessionInfo[];
}

/** Group sessions (newest first) by the day of their last use. `now` is in seconds. */
export function groupByDay(sessions: readonly SessionInfo[], now: number): SessionGroup[] {
  const midnight = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  const groups: SessionGroup[] = [];
  for (const session of sessions) {
    const title = dayTitle(session.updatedAt, midnight);
    const last = groups.at(-1);
    if (last?.title === title) last.sessions.push(session);
    else groups.push({ title, sessions: [session] });
  }
  return groups;
}

function dayTitle(time: number, midnight: number): string {
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY_SECONDS) return "Yesterday";
  if (time >= midnight - 7 * DAY_SECONDS) return "Last 7 days";
  if (time >= midnight - 30 * DAY_SECONDS) return "Last 30 days";
  return "Older";
}
