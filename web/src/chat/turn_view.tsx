/** One turn: the message, and everything until the agent has answered it. */
import { type Signal, useSignal } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { describeError, request } from "../api/client";
import type { MediaInfo, TextPart } from "../api/types";
import { formatBytes, formatClock, formatCount, formatDuration, formatNumber } from "../model/format";
import { type Cost, type Item, type Prompt, type Savings, type Turn, isLive, measureSavings } from "../model/turn";
import { href, navigate } from "../router";
import { STOP_REASON } from "../state/chat";
import { useServerNow } from "../state/clock";
import { attempt, notify } from "../state/notices";
import { forkSession } from "../state/sessions";
import { Boundary, Button, CopyButton, IconButton, Spinner } from "../ui/controls";
import { useGradualCount } from "../ui/gradual";
import { Icon } from "../ui/icons";
import { ImageView } from "../ui/image";
import { Markdown } from "../ui/markdown";
import { CallItem } from "./code_cell";
import type { NearbyTurns, TurnPlace } from "./nearby_turns";
import { QuestionForm } from "./answers";

/** More items of a turn in one frame would take too long: each may be a long text or program. */
const ITEMS_PER_FRAME = 2;
const MAX_PROMPT_CHARACTERS = 4000;
const MAX_ANSWER_CHARACTERS = 1_000_000;

export interface TurnViewProps {
  turn: Signal<Turn>;
  sessionId: string;
  /** Knows which turns are so far from what the reader sees that they need not be in the page. */
  nearby: NearbyTurns;
}

export const TurnView = memo(function TurnView({ turn: source, sessionId, nearby }: TurnViewProps) {
  const turn = source.value;
  const element = useRef<HTMLElement>(null);
  const place = useSignal<TurnPlace>({ isFar: false, height: 0 });
  useEffect(() => (element.current === null ? undefined : nearby.watch(element.current, place)), [nearby]);
  const { isFar, height } = place.value;
  const drawn = useGradualCount(turn.items.length, ITEMS_PER_FRAME, isFar);
  // A turn that comes back keeps its height until all of its parts are there.
  const style = isFar ? { height: `${height}px` } : drawn < turn.items.length && height > 0 ? { minHeight: `${height}px` } : undefined;
  return (
    <article ref={element} class="turn" data-run={turn.runId} aria-busy={isLive(turn)} style={style}>
      {!isFar && <TurnContent turn={turn} sessionId={sessionId} drawn={drawn} />}
    </article>
  );
});

function TurnContent({ turn, sessionId, drawn }: { turn: Turn; sessionId: string; drawn: number }) {
  return (
    <>
      {turn.prompt !== undefined && <PromptView prompt={turn.prompt} />}
      {turn.trigger !== "" && <p class="hint">Started by {turn.trigger}</p>}
      {turn.dropped > 0 && <p class="hint">The first {formatNumber(turn.dropped)} events of this run are no longer available.</p>}
      {turn.items.slice(0, drawn).map((item) => (
        <Boundary key={item.id}>
          <ItemView item={item} turn={turn} sessionId={sessionId} />
        </Boundary>
      ))}
      {turn.hasMoreCalls && (
        <p class="hint">
          Not all calls are listed here. <a href={href(`/runs/${turn.runId}`)}>Show the run</a>
        </p>
      )}
      <TurnEnd turn={turn} sessionId={sessionId} />
    </>
  );
}

export function PromptView({ prompt }: { prompt: Prompt }) {
  const isWhole = useSignal(false);
  const isLong = prompt.text.length > MAX_PROMPT_CHARACTERS;
  return (
    <div class="prompt">
      <div class="bubble">
        {isLong && !isWhole.value ? `${prompt.text.slice(0, MAX_PROMPT_CHARACTERS)}…` : prompt.text}
        {isLong && (
          <Button variant="quiet" onClick={() => (isWhole.value = !isWhole.value)}>
            {isWhole.value ? "Show less" : "Show all"}
          </Button>
        )}
        {prompt.images.map((image, index) => (
          <ImageView key={index} url={image} name={`Image ${index + 1}`} />
        ))}
        {prompt.media.map((media) => (
          <MediaView key={media.id} media={media} />
        ))}
      </div>
    </div>
  );
}

const ItemView = memo(
  function ItemView({ item, turn, sessionId }: { item: Item; turn: Turn; sessionId: string }) {
    switch (item.kind) {
      case "text":
        // Commands answer in lines, not in Markdown.
        return turn.command === "" ? <AnswerText item={item} sessionId={sessionId} /> : <p class="command-answer">{item.text}</p>;
      case "thinking":
        return <Thinking text={item.text} isGrowing={item.isGrowing} />;
      case "call": {
        const call = turn.calls.get(item.callId);
        return call === undefined ? null : <CallItem turn={turn} call={call} />;
      }
      case "steered":
        return (
          <div class="prompt">
            <div class="bubble">
              {item.text}
              {item.note !== "" && <p class="hint">{item.note}</p>}
            </div>
          </div>
        );
      case "sent":
        return (
          <div class="answer sent">
            <Markdown text={item.text} />
          </div>
        );
      case "media":
        return <MediaView media={item.media} />;
      case "question":
        return <QuestionForm sessionId={sessionId} question={item.question} />;
      case "notice":
        return (
          <p class={`turn-notice${item.isProblem ? " problem" : ""}`}>
            {item.isProblem && <Icon name="warning" />}
            {item.text}
          </p>
        );
    }
  },
  // Most items do not change with the rest of their turn.
  (before, after) => before.item === after.item && (before.item.kind !== "call" || isSameCall(before.turn, after.turn, before.item.callId)),
);

function isSameCall(before: Turn, after: Turn, callId: string): boolean {
  return before.calls.get(callId) === after.calls.get(callId) && isLive(before) === isLive(after);
}

function AnswerText({ item, sessionId }: { item: Extract<Item, { kind: "text" }>; sessionId: string }) {
  const rest = useSignal("");
  const load = async () => {
    let text = "";
    for (let offset: number | null = 0; offset !== null && text.length < MAX_ANSWER_CHARACTERS; ) {
      const part: TextPart = await request<TextPart>(`/api/sessions/${sessionId}/messages/${item.sequence}`, { query: { offset } });
      text += part.text;
      offset = part.nextOffset;
    }
    rest.value = text;
  };
  // A screen reader says an answer that arrives when it is complete, and not with each word.
  const hasArrived = item.sequence < 0;
  return (
    <div class={`answer${item.isGrowing ? " growing" : ""}`} aria-live={hasArrived ? "polite" : undefined} aria-busy={hasArrived ? item.isGrowing : undefined}>
      <Markdown text={rest.value || item.text} isGrowing={item.isGrowing} />
      {item.cut?.isCut === true && rest.value === "" && (
        <Button variant="quiet" onClick={() => void attempt(load)}>
          Show all {formatBytes(item.cut.bytes)}
        </Button>
      )}
    </div>
  );
}

function Thinking({ text, isGrowing }: { text: string; isGrowing: boolean }) {
  const isOpen = useSignal(false);
  return (
    <div class="thinking">
      <button type="button" class="disclosure" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class={`twist${isOpen.value ? " open" : ""}`}>
          <Icon name="chevron" />
        </span>
        {isGrowing ? "Thinking…" : "Thoughts"}
      </button>
      {isOpen.value && <Markdown text={text} isGrowing={isGrowing} />}
    </div>
  );
}

function MediaView({ media }: { media: MediaInfo }) {
  const url = media.url || `/api/media/${media.id}`;
  if (media.type.startsWith("image/") && media.type !== "image/svg+xml") return <ImageView url={url} name={media.name} />;
  if (media.type.startsWith("audio/") || media.type.startsWith("video/")) {
    return (
      <a class="file" href={url} download={media.name}>
        <Icon name="play" /> {media.name} <span class="hint">{formatBytes(media.size)}</span>
      </a>
    );
  }
  return (
    <a class="file" href={url} download={media.name}>
      <Icon name="file" /> {media.name} <span class="hint">{formatBytes(media.size)}</span>
    </a>
  );
}

function TurnEnd({ turn, sessionId }: { turn: Turn; sessionId: string }) {
  const live = isLive(turn);
  const now = useServerNow(live);
  const hasSavings = useSignal(false);
  const savings = useMemo(() => (live ? null : measureSavings(turn)), [turn, live]);
  if (live) {
    const isWaiting = turn.status === "waiting" || [...turn.calls.values()].some(({ status }) => status === "waiting");
    const label = isWaiting ? "Waiting for you" : turn.activity || (turn.status === "queued" ? "Queued" : "Working");
    return (
      <p class="turn-end">
        <Spinner label={label} />
        <span>{label}</span>
        {turn.startedAt > 0 && <span>{formatDuration(Math.max(0, now - turn.startedAt))}</span>}
      </p>
    );
  }
  return (
    <footer class="turn-end">
      <TurnProblem turn={turn} />
      <TurnFacts turn={turn} />
      {savings !== null && (
        <button
          type="button"
          class="badge good"
          title="What code mode saved against direct tools"
          aria-expanded={hasSavings.value}
          onClick={() => (hasSavings.value = !hasSavings.value)}
        >
          {formatCount(savings.tokens)} tokens saved ({formatBytes(savings.bytes)})
        </button>
      )}
      <span class="turn-actions">
        <CopyButton text={() => turnText(turn)} label="Copy the answer" />
        <IconButton icon="timeline" label="Show the run" onClick={() => navigate(`/runs/${turn.runId}`)} />
        <IconButton icon="fork" label="Fork the session here" onClick={() => void fork(sessionId, turn.runId)} />
      </span>
      {savings !== null && hasSavings.value && <SavingsTable savings={savings} />}
    </footer>
  );
}

function TurnProblem({ turn }: { turn: Turn }) {
  if (turn.status === "completed") return null;
  const words: Record<string, string> = {
    failed: "Failed",
    aborted: "Stopped",
    interrupted: "Interrupted: the gateway ended during this run",
  };
  return (
    <p class={`turn-problem ${turn.status}`}>
      <Icon name={turn.status === "aborted" ? "stop" : "warning"} />
      <span>
        {words[turn.status] ?? turn.status}
        {turn.error !== "" && turn.error !== STOP_REASON && `: ${turn.error}`}
      </span>
    </p>
  );
}

function TurnFacts({ turn }: { turn: Turn }) {
  const { usage } = turn;
  const parts: string[] = [];
  if (turn.startedAt > 0) parts.push(formatClock(turn.startedAt));
  if (turn.startedAt > 0 && turn.endedAt > 0) parts.push(formatDuration(turn.endedAt - turn.startedAt));
  if (turn.model !== "") parts.push(turn.model);
  if (usage !== null && usage.inputTokens + usage.outputTokens > 0) {
    parts.push(`${formatCount(usage.inputTokens)} in, ${formatCount(usage.outputTokens)} out`);
  }
  return <span class="turn-facts">{parts.join(" · ")}</span>;
}

/** What code mode saved against direct tools, in all requests of the turn. */
function SavingsTable({ savings }: { savings: Savings }) {
  const rows: [string, Cost | null][] = [
    ["Definitions of tools", savings.definitions],
    ["Results of calls", savings.results],
  ];
  return (
    <div class="savings" role="region" aria-label="What code mode saved">
      <table>
        <thead>
          <tr>
            <td />
            <th scope="col">Sent to the model</th>
            <th scope="col">With direct tools</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(
            ([name, cost]) =>
              cost !== null && (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>{formatBytes(cost.sent)}</td>
                  <td>{formatBytes(cost.direct)}</td>
                </tr>
              ),
          )}
        </tbody>
      </table>
      <p class="hint">
        Definitions go with each request. Results count once, although later requests would repeat them. A token is about four bytes.
      </p>
    </div>
  );
}

function turnText(turn: Turn): string {
  return turn.items.flatMap((item) => (item.kind === "text" || item.kind === "sent" ? [item.text] : [])).join("\n\n");
}

async function fork(sessionId: string, runId: string): Promise<void> {
  try {
    navigate(`/sessions/${await forkSession(sessionId, runId)}`);
  } catch (error) {
    notify(describeError(error), { isError: true });
  }
}
