/** Run a program against the tools of an agent, with the same view as in the chat. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { request } from "../api/client";
import { EventStream } from "../api/event_stream";
import type { AppEvent } from "../api/types";
import { CallItem } from "../chat/code_cell";
import { applyEvents } from "../model/live_turn";
import { type Turn, emptyTurn, isLive } from "../model/turn";
import { href } from "../router";
import { hasScope } from "../state/auth";
import { stopRun, stoppingRuns } from "../state/chat";
import { attempt } from "../state/notices";
import { readStored, writeStored } from "../state/storage";
import { Button, EmptyState, PageHeader } from "../ui/controls";
import { Icon } from "../ui/icons";
import { AgentSelect } from "./parts";

const REDRAW_MS = 60;
const EXAMPLE = `// tools.name(input) calls a tool.
const found = ALL_TOOLS.map((tool) => tool.name);
console.log(\`\${found.length} tools\`);
return found;`;
const ENDINGS = new Set(["run.completed", "run.failed", "run.aborted", "run.interrupted"]);

export default function Playground() {
  const code = useSignal(readStored("playground.code") || EXAMPLE);
  const language = useSignal(readStored("playground.language") || "typescript");
  const agentId = useSignal("");
  const runId = useSignal("");
  const isBusy = useSignal(false);
  const turn = useTurn(runId.value);

  const run = async () => {
    if (isBusy.value) return;
    isBusy.value = true;
    await attempt(async () => {
      const body = { code: code.value, language: language.value, ...(agentId.value === "" ? {} : { agentId: agentId.value }) };
      runId.value = (await request<{ runId: string }>("/api/playground", { method: "POST", body })).runId;
    });
    isBusy.value = false;
  };
  const isRunning = turn !== undefined && isLive(turn);
  return (
    <div class="playground-view">
      <PageHeader title="Playground">
        {isRunning && (
          <Button icon="stop" disabled={stoppingRuns.value.has(turn.runId)} onClick={() => void stopRun(turn.runId)}>
            Stop
          </Button>
        )}
        <Button variant="primary" icon="play" title="Run (Ctrl+Enter)" disabled={isBusy.value || isRunning || !hasScope("run")} onClick={() => void run()}>
          Run
        </Button>
      </PageHeader>
      <div class="playground-body">
        <section class="playground-editor" aria-label="Program">
          <div class="playground-options">
            <label>
              <span class="hint">Language</span>
              <select
                value={language.value}
                onChange={(event) => {
                  language.value = event.currentTarget.value;
                  writeStored("playground.language", language.value);
                }}
              >
                <option value="typescript">TypeScript</option>
                <option value="javascript">JavaScript</option>
              </select>
            </label>
            <AgentSelect value={agentId.value} onChange={(id) => (agentId.value = id)} />
          </div>
          <textarea
            class="code-input"
            aria-label="Program"
            spellcheck={false}
            value={code.value}
            onInput={(event) => {
              code.value = event.currentTarget.value;
              writeStored("playground.code", code.value);
            }}
            onKeyDown={(event) => onEditorKey(event, () => void run())}
          />
          <p class="hint">
            <kbd>Ctrl</kbd> <kbd>Enter</kbd> runs it. <kbd>Esc</kbd>, then <kbd>Tab</kbd> leaves the editor.
          </p>
        </section>
        <section class="playground-result" aria-label="Result">
          {turn === undefined ? (
            <EmptyState title="Nothing has run yet">
              <p>The program calls tools on the path of every call: with policy, approvals and a record.</p>
            </EmptyState>
          ) : (
            <Result turn={turn} />
          )}
        </section>
      </div>
    </div>
  );
}

function Result({ turn }: { turn: Turn }) {
  const roots = [...turn.calls.values()].filter((call) => call.parentId === "");
  return (
    <>
      {roots.map((call) => (
        <CallItem key={call.id} turn={turn} call={call} />
      ))}
      {turn.error !== "" && (
        <p class="problem" role="alert">
          {turn.error}
        </p>
      )}
      <p class="playground-links">
        <span class={`status-pill ${isLive(turn) ? "running" : turn.status}`}>{turn.status}</span>
        <a href={href(`/runs/${turn.runId}`)}>
          <Icon name="timeline" /> Timeline
        </a>
      </p>
    </>
  );
}

/** Follow the events of a run. */
function useTurn(runId: string): Turn | undefined {
  const turn = useSignal<Turn | undefined>(undefined);
  useEffect(() => {
    if (runId === "") return;
    turn.value = emptyTurn(runId);
    let pending: AppEvent[] = [];
    const flush = () => {
      if (pending.length === 0) return;
      turn.value = applyEvents(turn.value ?? emptyTurn(runId), pending);
      pending = [];
    };
    const stream = new EventStream(`/api/runs/${runId}/events`, {}, {
      onEvents: (events) => {
        for (const { event, data } of events) {
          const parsed = JSON.parse(data) as AppEvent;
          pending.push({ ...parsed, kind: event, runId, sessionId: "", data: parsed.data ?? {} });
          if (ENDINGS.has(event)) stream.close();
        }
      },
      onStatus: () => undefined,
    });
    const timer = setInterval(flush, REDRAW_MS);
    return () => {
      clearInterval(timer);
      stream.close();
    };
  }, [runId]);
  return turn.value;
}

/** Tab indents, unless Escape came before it: then it moves the focus, as everywhere. */
function onEditorKey(event: KeyboardEvent & { currentTarget: HTMLTextAreaElement }, run: () => void): void {
  const box = event.currentTarget;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  } else if (event.key === "Escape") {
    box.dataset["leave"] = "true";
  } else if (event.key === "Tab" && !event.shiftKey && box.dataset["leave"] !== "true") {
    event.preventDefault();
    box.setRangeText("  ", box.selectionStart, box.selectionEnd, "end");
    box.dispatchEvent(new Event("input", { bubbles: true }));
  } else {
    delete box.dataset["leave"];
  }
}
