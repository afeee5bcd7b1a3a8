/** The newest lines of the gateway's log, as they are written. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { request } from "../api/client";
import { Button, EmptyState, ErrorState, Loading } from "../ui/controls";
import { showControls, stripAnsi } from "../model/format";

const POLL_MS = 2000;
const MAX_LINES = 1000;
const LEVELS = ["debug", "info", "warning", "error"] as const;

interface Line {
  n: number;
  time: number;
  level: string;
  logger: string;
  message: string;
}

export function Logs() {
  const lines = useSignal<Line[]>([]);
  const error = useSignal<unknown>(undefined);
  const isLoaded = useSignal(false);
  const level = useSignal<string>("info");
  const text = useSignal("");
  const isFollowing = useSignal(true);
  const attempt = useSignal(0);
  const end = useRef<HTMLDivElement>(null);

  useEffect(() => {
    let lastN = 0;
    let isClosed = false;
    const poll = async () => {
      try {
        const answer = await request<{ lines: Line[]; lastN: number }>("/api/logs", { query: { limit: MAX_LINES, after: lastN, level: level.value } });
        if (isClosed) return;
        // A gateway that was restarted counts from the start again.
        if (answer.lastN < lastN) lines.value = [];
        lastN = answer.lastN;
        if (answer.lines.length > 0) lines.value = [...lines.value, ...answer.lines].slice(-MAX_LINES);
        error.value = undefined;
      } catch (problem) {
        if (!isClosed) error.value = problem;
      }
      if (!isClosed) isLoaded.value = true;
    };
    lines.value = [];
    void poll();
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void poll();
    }, POLL_MS);
    return () => {
      isClosed = true;
      clearInterval(timer);
    };
  }, [level.value, attempt.value]);

  const wanted = text.value.trim().toLowerCase();
  const shown = lines.value.filter((line) => wanted === "" || `${line.logger} ${line.message}`.toLowerCase().includes(wanted));
  useEffect(() => {
    if (isFollowing.value) end.current?.scrollIntoView({ block: "end" });
  }, [shown.length, isFollowing.value]);

  const save = () => {
    const content = shown.map((line) => `${new Date(line.time * 1000).toISOString()} ${line.level.toUpperCase()} ${line.logger}: ${line.message}\n`);
    const url = URL.createObjectURL(new Blob(content, { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "nacre.log";
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <div class="logs">
      <div class="logs-tools">
        <input type="search" placeholder="Filter" aria-label="Filter the log" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <select aria-label="Lowest level" value={level.value} onChange={(event) => (level.value = event.currentTarget.value)}>
          {LEVELS.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
        <label class="check">
          <input type="checkbox" checked={isFollowing.value} onChange={(event) => (isFollowing.value = event.currentTarget.checked)} />
          Follow
        </label>
        <Button icon="download" onClick={save}>
          Save
        </Button>
      </div>
      {error.value !== undefined && lines.value.length === 0 ? (
        <ErrorState error={error.value} onRetry={() => (attempt.value += 1)} />
      ) : !isLoaded.value ? (
        <Loading />
      ) : shown.length === 0 ? (
        <EmptyState title="No lines">
          <p>{wanted === "" ? "The gateway has logged nothing of this level since it started." : "No line contains this text."}</p>
        </EmptyState>
      ) : (
        <div class="log-lines" role="log" aria-label="Log" tabIndex={0}>
          {shown.map((line) => (
            <div key={line.n} class={`log-line ${line.level.toLowerCase()}`}>
              <time>{formatLogTime(line.time)}</time>
              <span class="level">{line.level.toLowerCase()}</span>
              <span class="logger">{line.logger}</span>
              <span class="message">{showControls(stripAnsi(line.message))}</span>
            </div>
          ))}
          <div ref={end} />
        </div>
      )}
    </div>
  );
}

function formatLogTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
