/** Messages at the edge of the page, and texts for screen readers. */
import { signal } from "@preact/signals";

import { describeError } from "../api/client";

const NOTICE_MS = 8000;
const MAX_NOTICES = 4;

export interface Notice {
  id: number;
  text: string;
  isError: boolean;
}

export const notices = signal<Notice[]>([]);
/** What a polite live region says next. */
export const announcement = signal("");

let lastId = 0;

export function notify(text: string, options: { isError?: boolean } = {}): void {
  lastId += 1;
  const notice = { id: lastId, text, isError: options.isError === true };
  notices.value = [...notices.value, notice].slice(-MAX_NOTICES);
  setTimeout(() => dismissNotice(notice.id), NOTICE_MS);
}

export function dismissNotice(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function announce(text: string): void {
  announcement.value = text;
}

/** Run an action of the user; show its error, if there is one. Return whether it worked. */
export async function attempt(action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    notify(describeError(error), { isError: true });
    return false;
  }
}
