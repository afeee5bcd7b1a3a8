/** Nested calls as a tree with time bars. Details are made when they are opened. */
import { type Signal, useSignal } from "@preact/signals";
import { memo } from "preact/compat";
import { useCallback, useRef } from "preact/hooks";

import { formatBytes, formatDuration, formatNumber, showControls, stripAnsi, summarize } from "../model/format";
import type { Approval, Call, CallStatus, Turn } from "../model/turn";
import { Icon, type IconName } from "../ui/icons";
import { ApprovalCard } from "./approval_card";
import { ClientToolForm } from "./answers";
import { ValueView } from "./value_view";

/** Rows of one level in the page. If there are more calls, only the last ones have rows at first. */
const MAX_ROWS = 50;
const LAST_ROWS = 20;

const STATUS_ICONS: Record<CallStatus, IconName | "dot"> = {
  running: "dot",
  waiting: "bell",
  suspended: "dot",
  completed: "check",
  failed: "close",
  aborted: "stop",
};

export const STATUS_LABELS: Record<CallStatus, string> = {
  running: "running",
  waiting: "waiting for an answer",
  suspended: "suspended",
  completed: "completed",
  failed: "failed",
  aborted: "aborted",
};

export interface TreeProps {
  turn: Turn;
  /** The calls of the first level. */
  callIds: readonly string[];
  label: string;
  /** What the time bars cover, in seconds since 1970. */
  from: number;
  to: number;
}

export function StatusMark({ status }: { status: CallStatus }) {
  const icon = STATUS_ICONS[status];
  return (
    <span class={`status ${status}`} role="img" aria-label={STATUS_LABELS[status]} title={STATUS_LABELS[status]}>
      {icon === "dot" ? <span class="dot" /> : <Icon name={icon} />}
    </span>
  );
}

export function CallTree({ turn, callIds, label, from, to }: TreeProps) {
  const root = useRef<HTMLUListElement>(null);
  const open = useSignal<ReadonlySet<string>>(new Set());
  const focused = useSignal("");
  // The same function each time, so that rows that have not changed are not drawn again.
  const toggle = useCallback((id: string, isOpen: boolean) => {
    const next = new Set(open.value);
    if (isOpen) next.add(id);
    else next.delete(id);
    open.value = next;
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    const row = event.target;
    if (!(row instanceof HTMLElement) || row.getAttribute("role") !== "treeitem") return;
    const id = row.dataset["call"] ?? "";
    if (id === "" && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      row.click();
      return;
    }
    const rows = [...(root.current?.querySelectorAll<HTMLElement>("[role=treeitem]") ?? [])];
    const index = rows.indexOf(row);
    const isOpen = open.value.has(id);
    let target: HTMLElement | undefined;
    switch (event.key) {
      case "ArrowDown":
      case "j":
        target = rows[index + 1];
        break;
      case "ArrowUp":
      case "k":
        target = rows[index - 1];
        break;
      case "Home":
        target = rows[0];
        break;
      case "End":
        target = rows.at(-1);
        break;
      case "ArrowRight":
        if (isOpen) target = rows[index + 1];
        else toggle(id, true);
        break;
      case "ArrowLeft":
        if (isOpen) toggle(id, false);
        else target = row.parentElement?.closest<HTMLElement>("[role=treeitem]") ?? undefined;
        break;
      case "Enter":
      case " ":
        toggle(id, !isOpen);
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (target !== undefined) {
      focused.value = target.dataset["call"] ?? "";
      target.focus();
    }
  };
  const first = callIds[countHidden(callIds, 0)] ?? "";
  return (
    <ul class="call-tree" role="tree" aria-label={label} ref={root} onKeyDown={onKeyDown}>
      <Level turn={turn} callIds={callIds} level={1} from={from} to={to} open={open} focused={focused} first={first} onToggle={toggle} />
    </ul>
  );
}

/** Return how many of the calls have no row, if the user has asked for `more` rows. */
function countHidden(callIds: readonly string[], more: number): number {
  return callIds.length <= MAX_ROWS ? 0 : Math.max(0, callIds.length - LAST_ROWS - more);
}

interface LevelProps {
  turn: Turn;
  callIds: readonly string[];
  level: number;
  from: number;
  to: number;
  open: Signal<ReadonlySet<string>>;
  focused: Signal<string>;
  /** The row that Tab reaches before any was focused. */
  first: string;
  onToggle: (id: string, isOpen: boolean) => void;
}

function Level(props: LevelProps) {
  const { turn, callIds, open, focused, first } = props;
  const more = useSignal(0);
  const hidden = countHidden(callIds, more.value);
  return (
    <>
      {hidden > 0 && (
        <li role="treeitem" aria-level={props.level} tabIndex={-1} onClick={() => (more.value += MAX_ROWS)}>
          <div class="call-row more">Show earlier calls ({formatNumber(hidden)})</div>
        </li>
      )}
      {callIds.slice(hidden).map((id) => {
        const call = turn.calls.get(id);
        if (call === undefined) return null;
        const isOpen = open.value.has(id);
        return (
          <Row
            key={id}
            call={call}
            runId={turn.runId}
            level={props.level}
            from={props.from}
            to={props.to}
            isOpen={isOpen}
            isFocusable={focused.value === "" ? id === first : id === focused.value}
            focused={focused}
            onToggle={props.onToggle}
            nested={
              call.children.length > 0 && (
                <ul role="group">
                  <Level {...props} callIds={call.children} level={props.level + 1} />
                </ul>
              )
            }
          />
        );
      })}
    </>
  );
}

interface RowProps {
  call: Call;
  runId: string;
  level: number;
  from: number;
  to: number;
  isOpen: boolean;
  isFocusable: boolean;
  focused: Signal<string>;
  onToggle: (id: string, isOpen: boolean) => void;
  nested: preact.ComponentChildren;
}

const Row = memo(function Row({ call, runId, level, from, to, isOpen, isFocusable, focused, onToggle, nested }: RowProps) {
  const end = call.endedAt || to;
  const total = Math.max(to - from, 0.001);
  const left = clampShare((call.startedAt - from) / total);
  const width = Math.max(0.005, Math.min(1 - left, clampShare((end - call.startedAt) / total)));
  const openApproval = call.approvals.find((approval) => approval.answer === "" && approval.approvalId !== "");
  const openRequest = call.clientRequest?.how === "" ? call.clientRequest : undefined;
  return (
    <li
      role="treeitem"
      aria-level={level}
      aria-expanded={isOpen}
      aria-selected={isFocusable}
      tabIndex={isFocusable ? 0 : -1}
      data-call={call.id}
      onFocus={(event) => {
        if (event.target === event.currentTarget) focused.value = call.id;
      }}
    >
      <div class="call-row" onClick={() => onToggle(call.id, !isOpen)}>
        <span class={`twist${isOpen ? " open" : ""}`}>
          <Icon name="chevron" />
        </span>
        <span aria-hidden="true">
          <StatusMark status={call.status} />
        </span>
        <span class="call-name" title={call.toolId}>
          {showControls(call.toolName)}
          <span class="spoken">, {STATUS_LABELS[call.status]}</span>
        </span>
        <span class="call-summary">{describeCall(call)}</span>
        <span class="call-bar" aria-hidden="true">
          <span class={call.status} style={{ left: `${left * 100}%`, width: `${width * 100}%` }} />
        </span>
        <span class="call-time">{call.startedAt > 0 ? formatDuration(Math.max(0, end - call.startedAt)) : ""}</span>
      </div>
      {openApproval !== undefined && (
        <ApprovalCard
          approvalId={openApproval.approvalId}
          toolName={call.toolName}
          toolId={call.toolId}
          reason={openApproval.reason}
          input={openApproval.input ?? call.input}
          expiresAt={openApproval.expiresAt}
        />
      )}
      {openRequest !== undefined && <ClientToolForm runId={runId} call={call} request={openRequest} />}
      {isOpen && <CallDetails call={call} runId={runId} />}
      {nested}
    </li>
  );
});

/** Return one line about a call: its progress while it runs, its error, or its input. */
export function describeCall(call: Call): string {
  if (call.progress !== "" && call.endedAt === 0) return summarize(call.progress);
  return summarize(call.error === "" ? call.input : call.error);
}

export function CallDetails({ call, runId }: { call: Call; runId: string }) {
  return (
    <div class="call-details">
      <p class="hint">
        {showControls(call.toolId)}
        {call.source !== "" && ` · ${call.source}`}
        {call.resultCut !== null && ` · ${formatBytes(call.resultCut.bytes)}`}
      </p>
      {call.approvals.map((approval, index) => approval.answer !== "" && <AnsweredApproval key={index} approval={approval} />)}
      <ValueView label="Input" value={call.input} cut={call.inputCut} address={{ runId, callId: call.id, part: "input" }} />
      {call.error !== "" ? (
        <p class="problem">
          {showControls(stripAnsi(call.error))} {call.errorCode !== "" && <code>{call.errorCode}</code>}
        </p>
      ) : (
        call.endedAt > 0 && <ValueView label="Result" value={call.result} cut={call.resultCut} address={{ runId, callId: call.id, part: "result" }} />
      )}
    </div>
  );
}

export function AnsweredApproval({ approval }: { approval: Approval }) {
  const words: Record<string, string> = {
    allow: "Allowed",
    deny: "Denied",
    expired: "Nobody answered in time",
    withdrawn: "Withdrawn",
    given_up: "Not answered",
  };
  return (
    <p class={`badge ${approval.answer === "allow" ? "good" : "warn"}`}>
      {words[approval.answer] ?? approval.answer}
      {approval.how !== "" && ` (${approval.how})`}
    </p>
  );
}

function clampShare(share: number): number {
  return Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0));
}
