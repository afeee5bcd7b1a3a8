/** The waterfall of one run: model calls, cells, nested calls, approvals and waits. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { ApiError, request } from "../api/client";
import { EventStream } from "../api/event_stream";
import type { RunInfo } from "../api/types";
import { href, type ViewProps } from "../router";
import { Button, EmptyState, ErrorState, IconButton, Loading, PageHeader } from "../ui/controls";
import { Icon } from "../ui/icons";
import { formatDuration, showControls, stripAnsi } from "../model/format";
import { sessionTitle } from "../model/session_list";
import { sessionList } from "../state/sessions";
import { JsonBlock } from "./parts";
import { ReplayPanel } from "./replay";
import { type RunEvent, type Row, type Span, type SpanKind, Timeline, pickTicks, placeBar, zoomRange } from "./timeline_model";

const ROW_HEIGHT = 30;
const OVERSCAN_ROWS = 12;
/** On a phone, a label needs a quarter of the track. */
const LAST_LABEL_PERCENT = 74;
/** The time of a later tick would not fit into the ruler. */
const LAST_TICK_PERCENT = 88;
/** How often a live timeline is drawn again. */
const REDRAW_MS = 120;
const ENDINGS = new Set(["run.completed", "run.failed", "run.aborted", "run.interrupted"]);
const KINDS: readonly { kind: SpanKind; label: string }[] = [
  { kind: "model", label: "Model" },
  { kind: "cell", label: "Cells" },
  { kind: "call", label: "Calls" },
  { kind: "approval", label: "Approvals" },
  { kind: "wait", label: "Waits" },
];
const STATE_LABELS = { running: "Running", completed: "Completed", failed: "Failed", waiting: "Waiting", aborted: "Aborted" };

interface Range {
  from: number;
  to: number;
}

export default function RunView({ params, query }: ViewProps) {
  const runId = params["runId"] ?? "";
  return <RunTimeline key={runId} runId={runId} replayedCall={query.get("replay") ?? ""} />;
}

function RunTimeline({ runId, replayedCall }: { runId: string; replayedCall: string }) {
  const { timeline, version, now, error, isLoaded, retry } = useRunEvents(runId);
  const text = useSignal("");
  const hidden = useSignal<ReadonlySet<SpanKind>>(new Set());
  const collapsed = useSignal<ReadonlySet<string>>(new Set());
  const zoom = useSignal<Range | null>(null);
  const selectedId = useSignal("");

  const whole: Range = { from: timeline.startedAt, to: Math.max(timeline.endedAt ?? now, timeline.startedAt + 0.001) };
  const range = zoom.value ?? whole;
  const rows = useMemo(
    () => timeline.rows((span) => !hidden.value.has(span.kind) && matchesText(span, text.value), collapsed.value),
    [version, text.value, hidden.value, collapsed.value],
  );
  const selected = timeline.spans.find((span) => span.id === selectedId.value);
  const changeZoom = (factor: number) => {
    const middle = selected === undefined ? (range.from + range.to) / 2 : Math.min(Math.max(selected.startedAt, range.from), range.to);
    const next = zoomRange(range, factor, middle, whole);
    zoom.value = next.to - next.from >= whole.to - whole.from ? null : next;
  };

  if (error !== undefined || !isLoaded) {
    return (
      <div class="timeline-view">
        <PageHeader title="Run" />
        {error === undefined ? <Loading /> : <ErrorState error={error} onRetry={retry} />}
      </div>
    );
  }
  return (
    <div class="timeline-view">
      <PageHeader title={runTitle(timeline.sessionId)}>
        {timeline.sessionId !== "" && (
          <a class="button plain" href={href(`/sessions/${timeline.sessionId}?run=${runId}`)} aria-label="Open session">
            <Icon name="chat" /> <span class="label">Open session</span>
          </a>
        )}
        <a class="button plain" href={`/api/runs/${runId}/trajectory?format=jsonl`} download={`${runId}.jsonl`} aria-label="Download" onClick={(event) => void downloadTrajectory(event, runId)}>
          <Icon name="download" /> <span class="label">Download</span>
        </a>
      </PageHeader>
      <Summary timeline={timeline} now={now} runId={runId} />
      {replayedCall !== "" ? (
        <ReplayOfCall timeline={timeline} runId={runId} callId={replayedCall} />
      ) : (
        <>
      <div class="timeline-tools" role="toolbar" aria-label="Filter and zoom">
        <input type="search" class="input" placeholder="Filter by name or content" aria-label="Filter" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <div class="chips" role="group" aria-label="Kinds">
          {KINDS.map(({ kind, label }) => (
            <KindChip key={kind} kind={kind} label={label} isOn={!hidden.value.has(kind)} onToggle={() => (hidden.value = toggle(hidden.value, kind))} />
          ))}
        </div>
        <div class="zoom-buttons" role="group" aria-label="Zoom">
          <IconButton icon="minus" label="Zoom out" disabled={zoom.value === null} onClick={() => changeZoom(2)} />
          <IconButton icon="plus" label="Zoom in" onClick={() => changeZoom(0.5)} />
          <Button variant="quiet" disabled={zoom.value === null} onClick={() => (zoom.value = null)}>
            Fit
          </Button>
        </div>
      </div>
      {rows.length === 0 ? (
        <EmptyState title={timeline.spans.length === 0 ? (timeline.isEnded ? "This run made no calls" : "Nothing has happened yet") : "Nothing matches the filter"} />
      ) : (
        <div class={`timeline-body${selected === undefined ? "" : " has-details"}`}>
          <Waterfall
            rows={rows}
            range={range}
            whole={whole}
            now={now}
            selectedId={selectedId.value}
            collapsed={collapsed.value}
            onSelect={(id) => (selectedId.value = id)}
            onToggle={(id) => (collapsed.value = toggle(collapsed.value, id))}
            onZoom={(next) => (zoom.value = next)}
            onZoomBy={changeZoom}
          />
          {selected !== undefined && <Details span={selected} timeline={timeline} runId={runId} now={now} version={version} onClose={() => (selectedId.value = "")} />}
        </div>
      )}
        </>
      )}
    </div>
  );
}

function ReplayOfCall({ timeline, runId, callId }: { timeline: Timeline; runId: string; callId: string }) {
  const span = timeline.spans.find(({ kind, toolCallId }) => kind === "cell" && toolCallId === callId);
  if (span?.cellId !== undefined) return <ReplayPanel runId={runId} cellId={span.cellId} code={codeOf(span) ?? ""} language="typescript" />;
  if (!timeline.isEnded) return <Loading />;
  return (
    <EmptyState title="There is no record of this program">
      <a href={href(`/runs/${runId}`)}>Show the timeline</a>
    </EmptyState>
  );
}

/** A run is known by its session. */
function runTitle(sessionId: string): string {
  const session = sessionList.value.byId.get(sessionId);
  return session === undefined ? "Run" : `Run in ${sessionTitle(session)}`;
}

/** Read the events of a run, live or stored, and draw them a few times per second. */
function useRunEvents(runId: string) {
  const version = useSignal(0);
  const now = useSignal(0);
  const error = useSignal<unknown>(undefined);
  const isLoaded = useSignal(false);
  const attempt = useSignal(0);
  const timeline = useMemo(() => new Timeline(), [runId, attempt.value]);

  useEffect(() => {
    let isDirty = true;
    // The clock of the gateway, as far as its newest event tells it.
    let offset = Number.POSITIVE_INFINITY;
    const stream = new EventStream(`/api/runs/${runId}/events`, {}, {
      onEvents: (events) => {
        for (const { event, data } of events) {
          const parsed = JSON.parse(data) as RunEvent;
          timeline.add({ ...parsed, kind: event, data: parsed.data ?? {} });
          if (typeof parsed.time === "number") offset = Math.min(offset, Date.now() / 1000 - parsed.time);
          if (ENDINGS.has(event)) stream.close();
        }
        isDirty = true;
      },
      onStatus: () => undefined,
    });
    const draw = () => {
      if (!isDirty && (timeline.isEnded || timeline.startedAt === 0)) return;
      isDirty = false;
      now.value = timeline.endedAt ?? Math.max(timeline.lastTime, Date.now() / 1000 - offset);
      isLoaded.value ||= timeline.eventCount > 0;
      version.value += 1;
    };
    const timer = setInterval(draw, REDRAW_MS);
    checkRun(runId).catch((problem: unknown) => {
      error.value = problem;
      stream.close();
    });
    return () => {
      clearInterval(timer);
      stream.close();
    };
  }, [timeline]);

  const retry = () => {
    error.value = undefined;
    attempt.value += 1;
  };
  return { timeline, version: version.value, now: now.value, error: error.value, isLoaded: isLoaded.value, retry };
}

/** The stream of events connects again and again: an unknown run has to be noticed here. */
async function checkRun(runId: string): Promise<void> {
  try {
    await request<RunInfo>(`/api/runs/${runId}`);
  } catch (error) {
    if (error instanceof ApiError && !error.isUncertain) throw error;
  }
}

function Summary({ timeline, now, runId }: { timeline: Timeline; now: number; runId: string }) {
  const state = timeline.isEnded || timeline.spans.every((span) => span.state !== "waiting") ? timeline.state : "waiting";
  const duration = (timeline.endedAt ?? now) - timeline.startedAt;
  const count = (kind: SpanKind) => timeline.spans.filter((span) => span.kind === kind).length;
  const facts: [string, string][] = [
    ["Duration", timeline.startedAt === 0 ? "–" : formatDuration(duration)],
    ["Model calls", String(count("model"))],
    ["Cells", String(count("cell"))],
    ["Tool calls", String(count("call"))],
    ["Tokens", `${timeline.inputTokens.toLocaleString("en")} in, ${timeline.outputTokens.toLocaleString("en")} out`],
  ];
  return (
    <section class="run-summary" aria-label="Summary">
      <span class={`status-pill ${state}`} data-testid="run-state">
        {STATE_LABELS[state]}
      </span>
      <code class="run-id">{runId}</code>
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {timeline.error !== "" && <p class="problem">{timeline.error}</p>}
      {timeline.dropped > 0 && <p class="note">The run is so long that its first {timeline.dropped.toLocaleString("en")} events are no longer in memory.</p>}
    </section>
  );
}

function KindChip({ kind, label, isOn, onToggle }: { kind: SpanKind; label: string; isOn: boolean; onToggle: () => void }) {
  return (
    <button type="button" class={`chip kind-${kind}`} aria-pressed={isOn} onClick={onToggle}>
      <span class="swatch" aria-hidden="true" />
      {label}
    </button>
  );
}

interface WaterfallProps {
  rows: Row[];
  range: Range;
  whole: Range;
  now: number;
  selectedId: string;
  collapsed: ReadonlySet<string>;
  onSelect: (id: string) => void;
  onToggle: (id: string) => void;
  onZoom: (range: Range | null) => void;
  onZoomBy: (factor: number) => void;
}

function Waterfall(props: WaterfallProps) {
  const { rows, range, now, selectedId } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const first = useSignal(0);
  const visible = useSignal(60);
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const measure = () => {
      first.value = Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT) - OVERSCAN_ROWS);
      visible.value = Math.ceil(element.clientHeight / ROW_HEIGHT) + 2 * OVERSCAN_ROWS;
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);

  const current = Math.max(0, rows.findIndex(({ span }) => span.id === selectedId));
  const onKeyDown = (event: KeyboardEvent) => {
    const target = moveByKey(event.key, current, rows.length);
    const row = rows[current];
    if (target !== undefined) {
      const next = rows[target];
      if (next !== undefined) props.onSelect(next.span.id);
      scrollToRow(scroller.current, target);
    } else if (row !== undefined && event.key === "ArrowLeft" && row.hasChildren && !props.collapsed.has(row.span.id)) {
      props.onToggle(row.span.id);
    } else if (row !== undefined && event.key === "ArrowRight" && props.collapsed.has(row.span.id)) {
      props.onToggle(row.span.id);
    } else if (event.key === "+" || event.key === "=") {
      props.onZoomBy(0.5);
    } else if (event.key === "-") {
      props.onZoomBy(2);
    } else if (event.key === "0") {
      props.onZoom(null);
    } else {
      return;
    }
    event.preventDefault();
  };
  const active = rows[current];
  return (
    <div class="waterfall">
      <Ruler range={range} whole={props.whole} onZoom={props.onZoom} />
      <div
        ref={scroller}
        class="waterfall-rows"
        role="tree"
        aria-label="Timeline"
        tabIndex={0}
        aria-activedescendant={active === undefined ? undefined : rowId(active.span)}
        onKeyDown={onKeyDown}
      >
        <div class="waterfall-space" role="presentation" style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
          {rows.slice(first.value, first.value + visible.value).map((row, index) => (
            <WaterfallRow
              key={row.span.id}
              row={row}
              top={(first.value + index) * ROW_HEIGHT}
              range={range}
              now={now}
              isSelected={row.span.id === selectedId}
              isCollapsed={props.collapsed.has(row.span.id)}
              onSelect={() => props.onSelect(row.span.id)}
              onToggle={() => props.onToggle(row.span.id)}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  row: Row;
  top: number;
  range: Range;
  now: number;
  isSelected: boolean;
  isCollapsed: boolean;
  onSelect: () => void;
  onToggle: () => void;
}

function WaterfallRow({ row, top, range, now, isSelected, isCollapsed, onSelect, onToggle }: RowProps) {
  const { span, level, hasChildren } = row;
  const bar = placeBar(span, range, now);
  const duration = formatDuration(((span.endedAt ?? now) - span.startedAt));
  return (
    <div
      id={rowId(span)}
      class={`waterfall-row kind-${span.kind} ${span.state}`}
      role="treeitem"
      aria-level={level}
      aria-selected={isSelected}
      aria-expanded={hasChildren ? !isCollapsed : undefined}
      style={{ top: `${top}px` }}
      onClick={onSelect}
    >
      <div class="waterfall-name" style={{ paddingInlineStart: `${8 + (level - 1) * 16}px` }}>
        <span
          class={`row-twist${hasChildren ? "" : " empty"}${isCollapsed ? "" : " open"}`}
          aria-hidden="true"
          onClick={(event) => {
            if (!hasChildren) return;
            event.stopPropagation();
            onToggle();
          }}
        >
          {hasChildren && <Icon name="chevron" />}
        </span>
        <span class="swatch" aria-hidden="true" />
        <span class="label">{showControls(span.name)}</span>
        <span class="visually-hidden">{STATE_LABELS[span.state]}</span>
        <span class="detail">{showControls(span.detail)}</span>
      </div>
      <div class="waterfall-track">
        {bar !== null && (
          <span class="span-bar" style={{ left: `${bar.left}%`, width: `max(3px, ${bar.width}%)` }}>
            <span class={`span-label ${placeLabel(bar)}`}>{duration}</span>
          </span>
        )}
      </div>
    </div>
  );
}

/** A label has no room after a bar that reaches the end, nor before one that begins at the start. */
function placeLabel({ left, width }: { left: number; width: number }): "after" | "before" | "inside" {
  if (left + width <= LAST_LABEL_PERCENT) return "after";
  return left >= 100 - LAST_LABEL_PERCENT ? "before" : "inside";
}

/** The times above the bars. Drag over it to zoom into a part. */
function Ruler({ range, whole, onZoom }: { range: Range; whole: Range; onZoom: (range: Range | null) => void }) {
  const drag = useSignal<{ start: number; end: number } | null>(null);
  const track = useRef<HTMLDivElement>(null);
  const share = (event: PointerEvent): number => {
    const box = track.current?.getBoundingClientRect();
    return box === undefined ? 0 : Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  const finish = () => {
    const chosen = drag.value;
    drag.value = null;
    if (chosen === null || Math.abs(chosen.end - chosen.start) < 0.01) return;
    const length = range.to - range.from;
    const [left, right] = [Math.min(chosen.start, chosen.end), Math.max(chosen.start, chosen.end)];
    onZoom({ from: range.from + left * length, to: range.from + right * length });
  };
  const ticks = pickTicks(range.from - whole.from, range.to - whole.from, 5);
  const length = range.to - range.from;
  return (
    <div class="ruler" aria-hidden="true">
      <div class="ruler-name">Time since the start</div>
      <div
        ref={track}
        class="ruler-track"
        title="Drag to zoom"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          drag.value = { start: share(event), end: share(event) };
        }}
        onPointerMove={(event) => {
          if (drag.value !== null) drag.value = { start: drag.value.start, end: share(event) };
        }}
        onPointerUp={finish}
        onDblClick={() => onZoom(null)}
      >
        {ticks.map((tick) => {
          const percent = ((tick - (range.from - whole.from)) / length) * 100;
          return (
            <span key={tick} class="tick" style={{ left: `${percent}%` }}>
              {percent <= LAST_TICK_PERCENT && formatTick(tick, length)}
            </span>
          );
        })}
        {drag.value !== null && (
          <span class="ruler-selection" style={{ left: `${Math.min(drag.value.start, drag.value.end) * 100}%`, width: `${Math.abs(drag.value.end - drag.value.start) * 100}%` }} />
        )}
      </div>
    </div>
  );
}

interface DetailsProps {
  span: Span;
  timeline: Timeline;
  runId: string;
  now: number;
  /** The span changes in place; a new version draws it again. */
  version: number;
  onClose: () => void;
}

function Details({ span, timeline, runId, now, onClose }: DetailsProps) {
  const code = span.kind === "cell" ? codeOf(span) : undefined;
  return (
    <aside class="span-details" aria-label={`Details of ${span.name}`}>
      <header>
        <h2>{showControls(span.name)}</h2>
        <IconButton icon="close" label="Close details" onClick={onClose} />
      </header>
      <dl class="facts">
        <dt>State</dt>
        <dd>{STATE_LABELS[span.state]}</dd>
        <dt>Start</dt>
        <dd>{`+${formatDuration((span.startedAt - timeline.startedAt))}`}</dd>
        <dt>Duration</dt>
        <dd>{formatDuration(((span.endedAt ?? now) - span.startedAt))}</dd>
        {span.detail !== "" && span.kind !== "call" && span.kind !== "cell" && (
          <>
            <dt>Detail</dt>
            <dd>{showControls(span.detail)}</dd>
          </>
        )}
      </dl>
      <div class="form-actions">
        {span.toolCallId !== "" && timeline.sessionId !== "" && (
          <a class="button plain" href={href(`/sessions/${timeline.sessionId}?run=${runId}&call=${encodeURIComponent(span.toolCallId)}`)}>
            <Icon name="chat" /> Show in chat
          </a>
        )}
        {span.cellId !== undefined && span.endedAt !== null && (
          <a class="button plain" href={href(`/runs/${runId}?replay=${encodeURIComponent(span.toolCallId)}`)}>
            <Icon name="play" /> Replay
          </a>
        )}
      </div>
      {span.error !== undefined && <p class="problem">{showControls(stripAnsi(span.error))}</p>}
      {code !== undefined ? <JsonBlock title="Program" text={code} language="typescript" /> : span.input !== undefined && <JsonBlock title="Input" value={span.input} />}
      {span.result !== undefined && <JsonBlock title="Result" value={span.result} />}
    </aside>
  );
}

/** The API sends lines only if it is asked for them in a header, which a link cannot do. */
async function downloadTrajectory(event: MouseEvent, runId: string): Promise<void> {
  event.preventDefault();
  const response = await fetch(`/api/runs/${runId}/trajectory`, { headers: { Accept: "application/jsonl" } });
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = `${runId}.jsonl`;
  link.click();
  URL.revokeObjectURL(url);
}

function codeOf(span: Span): string | undefined {
  const input = span.input;
  if (typeof input !== "object" || input === null || Array.isArray(input)) return undefined;
  const code = input["code"];
  return typeof code === "string" ? code : undefined;
}

function matchesText(span: Span, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return wanted === "" || `${span.name} ${span.detail} ${span.id}`.toLowerCase().includes(wanted);
}

function moveByKey(key: string, current: number, count: number): number | undefined {
  const moves: Record<string, number> = { ArrowDown: current + 1, j: current + 1, ArrowUp: current - 1, k: current - 1, Home: 0, End: count - 1, Enter: current, " ": current };
  const target = moves[key];
  return target === undefined ? undefined : Math.min(Math.max(target, 0), count - 1);
}

function scrollToRow(element: HTMLElement | null, index: number): void {
  if (element === null) return;
  const top = index * ROW_HEIGHT;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + ROW_HEIGHT > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW_HEIGHT - element.clientHeight;
}

function toggle<T>(set: ReadonlySet<T>, item: T): ReadonlySet<T> {
  const next = new Set(set);
  if (!next.delete(item)) next.add(item);
  return next;
}

function formatTick(seconds: number, length: number): string {
  if (length < 2) return `${(seconds * 1000).toFixed(length < 0.02 ? 1 : 0)} ms`;
  return `${seconds.toFixed(length < 10 ? 1 : 0)} s`;
}

function rowId(span: Span): string {
  return `span-${span.id.replace(/[^\w-]/g, "_")}`;
}
