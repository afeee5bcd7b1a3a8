/** The state of the connection, notices, and texts for screen readers. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { connection, retryConnection } from "../state/live";
import { announcement, dismissNotice, notices } from "../state/notices";
import { Button, IconButton } from "./controls";

/** A short break needs no banner: most reconnections take less. */
const BANNER_AFTER_MS = 600;

export function ConnectionBanner() {
  const { status, retryAt } = connection.value;
  const isDown = status === "waiting" || status === "connecting";
  const isShown = useSignal(false);
  const now = useSignal(Date.now());
  useEffect(() => {
    if (!isDown) {
      isShown.value = false;
      return;
    }
    const show = setTimeout(() => (isShown.value = true), BANNER_AFTER_MS);
    const tick = setInterval(() => (now.value = Date.now()), 1000);
    return () => {
      clearTimeout(show);
      clearInterval(tick);
    };
  }, [isDown]);
  if (!isDown || !isShown.value) return null;
  const seconds = Math.max(0, Math.ceil((retryAt - now.value) / 1000));
  return (
    <div class="banner" role="status">
      <span>{status === "connecting" ? "Connecting to the gateway…" : `No connection to the gateway. Next attempt in ${seconds} s.`}</span>
      <Button variant="quiet" onClick={retryConnection}>
        Connect now
      </Button>
    </div>
  );
}

export function Notices() {
  return (
    <>
      <div class="notices">
        {notices.value.map((notice) => (
          <div key={notice.id} class={`notice${notice.isError ? " error" : ""}`} role={notice.isError ? "alert" : "status"}>
            <span>{notice.text}</span>
            <IconButton icon="close" label="Dismiss" onClick={() => dismissNotice(notice.id)} />
          </div>
        ))}
      </div>
      <div class="visually-hidden" aria-live="polite">
        {announcement.value}
      </div>
    </>
  );
}
