/** A program of the model: code, state, output, and its calls. */
import { useSignal } from "@preact/signals";
import { memo } from "preact/compat";

import { request } from "../api/client";
import { formatBytes, formatDuration, formatNumber, showControls, stripAnsi, summarize } from "../model/format";
import { type Call, type CallStatus, type Turn, countCalls, isLive } from "../model/turn";
import { navigate } from "../router";
import { hasScope } from "../state/auth";
import { useServerNow } from "../state/clock";
import { attempt } from "../state/notices";
import { Code } from "../ui/code";
import { Button, CopyButton, IconButton } from "../ui/controls";
import { Icon } from "../ui/icons";
import { ImageView } from "../ui/image";
import { AnsweredApproval, CallDetails, CallTree, STATUS_LABELS, StatusMark, describeCall } from "./call_tree";
import { ApprovalCard } from "./approval_card";
import { ClientToolForm } from "./answers";
import { ValueView } from "./value_view";

/** Longer programs are folded at first. */
const MAX_LINES = 24;
const MAX_OUTPUT_CHARACTERS = 8000;

const BADGES: Record<CallStatus, string> = {
  running: "accent",
  waiting: "warn",
  suspended: "warn",
  completed: "good",
  failed: "bad",
  aborted: "bad",
};

const SUSPENSIONS: Record<string, string> = { pending_tools: "its calls wait", yield: "until it is continued" };

/** A call of the model: a program as a code cell, any other tool as a row. */
export function CallItem({ turn, call }: { turn: Turn; call: Call }) {
  return call.isProgram ? <CodeCell turn={turn} call={call} /> : <ToolCall turn={turn} call={call} />;
}

function CodeCell({ turn, call }: { turn: Turn; call: Call }) {
  const isActive = call.status === "running" || call.status === "waiting" || call.status === "suspended";
  const now = useServerNow(isActive && call.endedAt === 0);
  const end = call.endedAt === 0 || (isActive && call.children.length > 0) ? Math.max(now, call.endedAt) : call.endedAt;
  const counts = countCalls(turn.calls, call);
  return (
    <section class={`cell ${call.status}`} data-call={call.id} aria-label={`Program, ${STATUS_LABELS[call.status]}`}>
      <header>
        <StatusMark status={call.status} />
        <span class="cell-name">{call.toolName}</span>
        <span class="hint">{call.language}</span>
        <span class="spacer" />
        <CellState call={call} />
        {counts.total > 0 && (
          <span class="hint">
            {formatNumber(counts.total)} {counts.total === 1 ? "call" : "calls"}
            {counts.failed > 0 && `, ${formatNumber(counts.failed)} failed`}
          </span>
        )}
        <span class="call-time">{call.startedAt > 0 ? formatDuration(Math.max(0, end - call.startedAt)) : ""}</span>
        {isLive(turn) && <CellActions turn={turn} call={call} />}
        {!isActive && call.startedAt > 0 && hasScope("run") && <IconButton icon="replay" label="Replay the program" onClick={() => replay(turn.runId, call)} />}
        <CopyButton text={call.code} label="Copy the program" />
      </header>
      <Program code={call.code} language={call.language} line={call.line} column={call.column} />
      {call.inputCut !== null && (
        <ValueView label="The whole input" value={null} cut={call.inputCut} address={{ runId: turn.runId, callId: call.id, part: "input" }} />
      )}
      <OwnApproval call={call} />
      {call.children.length > 0 && (
        <CallTree turn={turn} callIds={call.children} label="Nested calls" from={call.startedAt} to={end} />
      )}
      <CellOutput call={call} />
      <CallImages call={call} />
      <CellResult call={call} runId={turn.runId} />
    </section>
  );
}

function CellState({ call }: { call: Call }) {
  const { cell, status } = call;
  if (status === "completed" && (cell === undefined || cell.suspensions === 0)) return null;
  const parts = [STATUS_LABELS[status]];
  if (status === "suspended" && cell !== undefined) {
    parts.push(SUSPENSIONS[cell.reason] ?? cell.reason, formatBytes(cell.snapshotBytes), cell.isDurable ? "survives a restart" : "");
  }
  if (status === "completed" || status === "running") {
    if (cell !== undefined && cell.suspensions > 0) parts.push(`resumed after ${cell.suspensions} ${cell.suspensions === 1 ? "suspension" : "suspensions"}`);
  }
  return <span class={`badge ${BADGES[status]}`}>{parts.filter((part) => part !== "").join(" · ")}</span>;
}

function replay(runId: string, call: Call): void {
  navigate(`/runs/${runId}?replay=${encodeURIComponent(call.id)}`);
}

/** The images that the model got. */
function CallImages({ call }: { call: Call }) {
  if (call.images.length === 0) return null;
  return (
    <div class="cell-images">
      {call.images.map((url, index) => (
        <ImageView key={index} url={url} name={`Image ${index + 1} of ${call.toolName}`} />
      ))}
    </div>
  );
}

/** Continue or discard a program while it is alive. */
function CellActions({ turn, call }: { turn: Turn; call: Call }) {
  const { cell } = call;
  if (cell === undefined || !hasScope("run") || (cell.status !== "running" && cell.status !== "suspended")) return null;
  const act = (action: "resume" | "abort") => void attempt(() => request(`/api/cells/${cell.cellId}/${action}`, { method: "POST" }));
  // A program whose calls wait for an answer continues with that answer.
  const isAwaiting = call.children.some((id) => turn.calls.get(id)?.status === "waiting");
  return (
    <>
      {cell.status === "suspended" && call.endedAt > 0 && !isAwaiting && (
        <IconButton icon="play" label="Continue the program" onClick={() => act("resume")} />
      )}
      <IconButton icon="stop" label="Discard the program" onClick={() => act("abort")} />
    </>
  );
}

const Program = memo(function Program({ code, language, line, column }: { code: string; language: string; line: number; column: number }) {
  const lines = code.split("\n");
  const isLong = lines.length > MAX_LINES;
  const isFolded = useSignal(true);
  const hasFold = isLong && isFolded.value && line <= MAX_LINES;
  return (
    <>
      <Code
        code={hasFold ? lines.slice(0, MAX_LINES).join("\n") : code}
        language={language}
        errorLine={line}
        errorColumn={column}
        hasLineNumbers
      />
      {isLong && line <= MAX_LINES && (
        <Button variant="quiet" class="fold" onClick={() => (isFolded.value = !isFolded.value)}>
          {isFolded.value ? `Show all ${lines.length} lines` : "Show less"}
        </Button>
      )}
    </>
  );
});

function OwnApproval({ call }: { call: Call }) {
  const open = call.approvals.find((approval) => approval.answer === "" && approval.approvalId !== "");
  if (open === undefined) return null;
  return (
    <ApprovalCard
      approvalId={open.approvalId}
      toolName={call.toolName}
      toolId={call.toolId}
      reason={open.reason}
      input={open.input ?? call.input}
      expiresAt={open.expiresAt}
    />
  );
}

function CellOutput({ call }: { call: Call }) {
  const isWhole = useSignal(false);
  if (call.output.length === 0) return null;
  const text = stripAnsi(call.output.map((part) => part.text).join("\n"));
  const isLong = text.length > MAX_OUTPUT_CHARACTERS;
  const shown = isLong && !isWhole.value ? text.slice(-MAX_OUTPUT_CHARACTERS) : text;
  return (
    <section class="cell-output" aria-label="Output">
      {isLong && (
        <Button variant="quiet" onClick={() => (isWhole.value = !isWhole.value)}>
          {isWhole.value ? "Show the end only" : `Show all ${formatNumber(text.length)} characters`}
        </Button>
      )}
      <Code code={shown} language="" />
    </section>
  );
}

function CellResult({ call, runId }: { call: Call; runId: string }) {
  const isOpen = useSignal(false);
  if (call.status === "failed" || call.status === "aborted") {
    if (call.error === "") return null;
    return (
      <div class="cell-error" role="group" aria-label="Error">
        <Icon name="warning" />
        <pre>{showControls(stripAnsi(call.error))}</pre>
        {call.line > 0 && (
          <span class="hint">
            line {call.line}, column {call.column}
          </span>
        )}
      </div>
    );
  }
  if (call.status !== "completed") return null;
  const value = call.resultCut === null ? programValue(call) : call.result;
  if (value === undefined) return null;
  return (
    <div class="cell-result">
      <button type="button" class="disclosure" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class={`twist${isOpen.value ? " open" : ""}`}>
          <Icon name="chevron" />
        </span>
        <span>Result</span>
        <span class="call-summary">{summarize(value)}</span>
      </button>
      {isOpen.value && <ValueView label="Result" value={value} cut={call.resultCut} address={{ runId, callId: call.id, part: "result" }} />}
    </div>
  );
}

/** Return what the program returned; undefined if nothing. */
function programValue(call: Call) {
  const { result } = call;
  if (typeof result !== "object" || result === null || Array.isArray(result)) return result ?? undefined;
  return "value" in result ? result["value"] : undefined;
}

/** A call that is no program. */
function ToolCall({ turn, call }: { turn: Turn; call: Call }) {
  const isOpen = useSignal(false);
  const isActive = call.endedAt === 0 && (call.status === "running" || call.status === "waiting");
  const now = useServerNow(isActive);
  const end = call.endedAt || now;
  const openRequest = call.clientRequest?.how === "" ? call.clientRequest : undefined;
  return (
    <section class={`cell tool ${call.status}`} data-call={call.id} aria-label={`${call.toolName}, ${STATUS_LABELS[call.status]}`}>
      <button type="button" class="disclosure" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class={`twist${isOpen.value ? " open" : ""}`}>
          <Icon name="chevron" />
        </span>
        <StatusMark status={call.status} />
        <span class="call-name">{showControls(call.toolName)}</span>
        <span class="call-summary">{describeCall(call)}</span>
        <span class="call-time">{call.startedAt > 0 ? formatDuration(Math.max(0, end - call.startedAt)) : ""}</span>
      </button>
      <OwnApproval call={call} />
      {call.approvals.map((approval, index) => approval.answer !== "" && isOpen.value && <AnsweredApproval key={index} approval={approval} />)}
      {openRequest !== undefined && <ClientToolForm runId={turn.runId} call={call} request={openRequest} />}
      <CallImages call={call} />
      {isOpen.value && <CallDetails call={call} runId={turn.runId} />}
      {call.children.length > 0 && <CallTree turn={turn} callIds={call.children} label="Nested calls" from={call.startedAt} to={end} />}
    </section>
  );
}
