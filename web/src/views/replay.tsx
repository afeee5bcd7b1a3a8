/** A recorded program, run again without tools: its steps, and the first difference from its record. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { request } from "../api/client";
import type { Cut, Json } from "../api/types";
import { formatBytes, formatNumber, formatValue, showControls, stripAnsi, summarize } from "../model/format";
import { href } from "../router";
import { hasScope } from "../state/auth";
import { Code } from "../ui/code";
import { Button, CopyButton, ErrorState, Loading } from "../ui/controls";
import { Icon, type IconName } from "../ui/icons";

/** Steps in the page at first, and with each request for more. */
const STEPS = 50;
/** With fewer steps, all of them are open. */
const MAX_OPEN_STEPS = 12;

interface Answer {
  id: number;
  name: string;
  isSuccess: boolean;
  value: Json;
  valueCut: Cut | null;
  isExact: boolean;
}

interface ReplayCall {
  id: number;
  name: string;
  input: Json;
  inputCut: Cut | null;
  isRecorded: boolean;
}

interface Step {
  number: number;
  cause: "start" | "answers" | "timers";
  isRestored: boolean;
  answers: Answer[];
  output: { value: Json; valueCut: Cut | null; isText: boolean }[];
  calls: ReplayCall[];
  yields: string[];
}

interface End {
  status: string;
  value: Json;
  error: string;
  reason: string;
}

interface CellReplay {
  cellId: string;
  toolCallId: string;
  isCodeChanged: boolean;
  stepCount: number;
  recordedSteps: number;
  steps: Step[];
  end: End | null;
  recordedEnd: End | null;
  difference: string | null;
  notes: string[];
}

interface ReplayProps {
  runId: string;
  cellId: string;
  /** The program as it was recorded; empty while its events are loading. */
  code: string;
  language: string;
}

export function ReplayPanel({ runId, cellId, code, language }: ReplayProps) {
  const replayed = useSignal<CellReplay | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const isBusy = useSignal(false);
  /** The changed program; undefined for the recorded one. */
  const draft = useSignal<string | undefined>(undefined);
  /** The program of the steps that are shown. */
  const ran = useSignal<string | undefined>(undefined);

  const run = async (changed: string | undefined) => {
    isBusy.value = true;
    error.value = undefined;
    try {
      replayed.value = await fetchReplay(runId, { cellId, ...(changed === undefined ? {} : { code: changed }), maxSteps: STEPS });
      ran.value = changed;
    } catch (problem) {
      error.value = problem;
      replayed.value = undefined;
    }
    isBusy.value = false;
  };
  const loadMore = async () => {
    const known = replayed.value;
    if (known === undefined) return;
    isBusy.value = true;
    try {
      const more = await fetchReplay(runId, { cellId, ...(ran.value === undefined ? {} : { code: ran.value }), firstStep: known.steps.length + 1, maxSteps: STEPS });
      replayed.value = { ...known, steps: [...known.steps, ...more.steps] };
    } catch (problem) {
      error.value = problem;
    }
    isBusy.value = false;
  };
  useEffect(() => {
    draft.value = undefined;
    void run(undefined);
  }, [runId, cellId]);

  if (!hasScope("run")) return <ErrorState error={new Error("Your token does not have the scope `run`, which a replay needs.")} />;
  const current = replayed.value;
  const isEditing = draft.value !== undefined;
  return (
    <div class="replay">
      <div class="replay-bar">
        <a class="button quiet" href={href(`/runs/${runId}`)}>
          <span class="back-icon">
            <Icon name="chevron" />
          </span>
          Timeline
        </a>
        <h2>Replay</h2>
        <Verdict cell={current} isBusy={isBusy.value} />
        <span class="spacer" />
        {isEditing && (
          <Button
            variant="quiet"
            onClick={() => {
              draft.value = undefined;
              if (ran.value !== undefined) void run(undefined);
            }}
          >
            Recorded program
          </Button>
        )}
        {!isEditing && (
          <Button icon="edit" disabled={code === ""} onClick={() => (draft.value = code)}>
            Change the program
          </Button>
        )}
        <Button variant="primary" icon="play" disabled={isBusy.value} onClick={() => void run(draft.value)}>
          {isEditing ? "Run with recorded answers" : "Replay again"}
        </Button>
      </div>
      <div class="replay-body">
        <section class="replay-program" aria-label="Program">
          {draft.value === undefined ? (
            <Code code={code} language={language} hasLineNumbers />
          ) : (
            <textarea
              class="code-input"
              aria-label="Changed program"
              spellcheck={false}
              value={draft.value}
              onInput={(event) => (draft.value = event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
                event.preventDefault();
                void run(draft.value);
              }}
            />
          )}
          <p class="hint">
            {isEditing
              ? "No tool is called: a call with the same tool and input gets the recorded answer."
              : "No tool is called: the program gets the recorded answers, times and random numbers."}
          </p>
        </section>
        <section class="replay-steps" aria-label="Steps" aria-busy={isBusy.value}>
          {error.value !== undefined ? (
            <ErrorState error={error.value} onRetry={() => void run(draft.value)} />
          ) : current === undefined ? (
            <Loading label="The program runs again…" />
          ) : (
            <Steps key={`${current.cellId}${String(current.isCodeChanged)}`} cell={current} isBusy={isBusy.value} onMore={() => void loadMore()} />
          )}
        </section>
      </div>
    </div>
  );
}

async function fetchReplay(runId: string, body: Record<string, Json>): Promise<CellReplay> {
  const { cells } = await request<{ cells: CellReplay[] }>(`/api/runs/${runId}/replay`, { method: "POST", body });
  const [cell] = cells;
  if (cell === undefined) throw new Error("The run has no such program.");
  return cell;
}

/** Whether the program did the same again. */
function Verdict({ cell, isBusy }: { cell: CellReplay | undefined; isBusy: boolean }) {
  if (isBusy) return <span class="status-pill running">Running</span>;
  if (cell === undefined) return null;
  if (cell.difference !== null) return <span class="status-pill failed">Differs from the record</span>;
  return <span class="status-pill completed">No difference</span>;
}

function Steps({ cell, isBusy, onMore }: { cell: CellReplay; isBusy: boolean; onMore: () => void }) {
  const rest = cell.stepCount - cell.steps.length;
  const differing = stepOfDifference(cell);
  return (
    <>
      {cell.difference !== null && (
        <div class="difference" role="alert">
          <Icon name="warning" />
          <div>
            <strong>First difference</strong>
            <p>{showControls(cell.difference)}</p>
          </div>
        </div>
      )}
      {cell.notes.map((note) => (
        <p key={note} class="hint">
          {note}
        </p>
      ))}
      <p class="hint">
        {formatNumber(cell.stepCount)} {cell.stepCount === 1 ? "step" : "steps"}
        {!cell.isCodeChanged && cell.stepCount !== cell.recordedSteps && ` of ${formatNumber(cell.recordedSteps)}`}. In each of them the program runs until it can only wait.
      </p>
      <ol class="step-list">
        {cell.steps.map((step) => (
          <StepView key={step.number} step={step} isOpen={cell.steps.length <= MAX_OPEN_STEPS || step.number === differing} isDifferent={step.number === differing} />
        ))}
      </ol>
      {rest > 0 && (
        <Button disabled={isBusy} onClick={onMore}>
          Show {formatNumber(Math.min(rest, STEPS))} more of {formatNumber(rest)} steps
        </Button>
      )}
      <EndView cell={cell} />
    </>
  );
}

/** Return the number of the step that the difference names; 0 if it names none. */
function stepOfDifference(cell: CellReplay): number {
  return Number(/^step (\d+):/.exec(cell.difference ?? "")?.[1] ?? 0);
}

const CAUSES: Record<Step["cause"], string> = { start: "The program starts", answers: "It gets answers", timers: "Its timers are due" };

function StepView({ step, isOpen, isDifferent }: { step: Step; isOpen: boolean; isDifferent: boolean }) {
  const facts = [
    step.isRestored ? "resumed" : "",
    count(step.answers.length, "answer"),
    count(step.output.length, "output"),
    count(step.calls.length, "call"),
  ].filter((part) => part !== "");
  return (
    <li>
      <details class={`step${isDifferent ? " different" : ""}`} open={isOpen}>
        <summary>
          <span class="step-number">{step.number}</span>
          <span>{CAUSES[step.cause]}</span>
          <span class="hint">{facts.join(" · ")}</span>
        </summary>
        <ul class="step-parts">
          {step.answers.map((answer) => (
            <Part key={`a${answer.id}`} icon={answer.isSuccess ? "check" : "close"} tone={answer.isSuccess ? "good" : "bad"} label={answer.name} value={answer.value} cut={answer.valueCut} note={answer.isExact ? "" : "only a part is recorded"} />
          ))}
          {step.output.map((item, index) => (
            <Part key={`o${index}`} icon="chat" label="output" value={item.value} cut={item.valueCut} note="" />
          ))}
          {step.calls.map((call) => (
            <Part key={`c${call.id}`} icon="send" label={`calls ${call.name}`} value={call.input} cut={call.inputCut} note={call.isRecorded ? "" : "not recorded: it would be called"} />
          ))}
          {step.yields.map((reason, index) => (
            <Part key={`y${index}`} icon="stop" label="yields" value={reason} cut={null} note="" />
          ))}
        </ul>
      </details>
    </li>
  );
}

/** One thing that happened in a step; its whole value is shown when it is asked for. */
function Part(props: { icon: IconName; tone?: string; label: string; value: Json; cut: Cut | null; note: string }) {
  const isOpen = useSignal(false);
  const { icon, tone = "", label, value, cut, note } = props;
  return (
    <li>
      <button type="button" class="disclosure" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class={`part-icon ${tone}`}>
          <Icon name={icon} />
        </span>
        <span class="call-name">{showControls(label)}</span>
        <span class="call-summary">{summarize(value)}</span>
        {note !== "" && <span class="badge warn">{note}</span>}
      </button>
      {isOpen.value && (
        <div class="part-value">
          <Code code={stripAnsi(formatValue(value))} language={typeof value === "string" ? "" : "json"} />
          <p class="part-foot">
            {cut !== null && <span class="hint">The start of {formatBytes(cut.bytes)}</span>}
            <CopyButton text={() => formatValue(value)} label="Copy the value" />
          </p>
        </div>
      )}
    </li>
  );
}

function EndView({ cell }: { cell: CellReplay }) {
  const { end } = cell;
  const isFailed = end !== null && end.status !== "completed";
  return (
    <p class="replay-end">
      <span class={`badge ${end === null ? "warn" : isFailed ? "bad" : "good"}`}>{end === null ? "waits" : end.status}</span>
      <code>{end === null ? "The program still waits." : isFailed ? showControls(`${end.reason}: ${end.error}`) : summarize(end.value)}</code>
    </p>
  );
}

function count(number: number, name: string): string {
  return number === 0 ? "" : `${number} ${name}${number === 1 ? "" : "s"}`;
}
