/** A session as a chat, or the beginning of a new one. */
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { type Signal, useSignal } from "@preact/signals";

import { QUEUED } from "../model/turn";
import { type OutboxEntry, isSteering } from "../model/outbox";
import { sessionTitle } from "../model/session_list";
import { type ViewProps, navigate } from "../router";
import { type ChatStore, currentChat, openChat, readReply, stopRun } from "../state/chat";
import { discardMessage, discardRun, outbox, resendMessage, sendMessage } from "../state/outbox";
import { announce, attempt } from "../state/notices";
import { sessionList } from "../state/sessions";
import { Button, EmptyState, ErrorState, IconButton, Loading, PageHeader, Spinner } from "../ui/controls";
import { SessionMenu } from "../ui/session_menu";
import { Composer, type OutgoingMessage } from "./composer";
import { NearbyTurns } from "./nearby_turns";
import { PromptView, TurnView } from "./turn_view";

/** This near to the end, the page follows the text. */
const NEAR_END_PIXELS = 60;
const SETTLING_FRAMES = 5;
/** This near to the first turn of the page, older ones are added above it. */
const NEAR_START_PIXELS = 2500;
/** Turns that the page shows at first. More of them would delay the first look at the last one. */
const FIRST_TURNS = 2;
/** With fewer turns left that are loaded and not shown, the next ones are loaded. */
const MIN_WAITING_TURNS = 10;
/** So many frames after a turn, all of its parts are drawn. */
const TARGET_FRAMES = 60;
/** The browser keeps what the reader sees in its place when something above it changes. */
const HAS_ANCHORS = CSS.supports("overflow-anchor: auto");

export function Chat({ params, query }: ViewProps) {
  const sessionId = params["sessionId"];
  useLayoutEffect(() => openChat(sessionId), [sessionId]);
  useEffect(() => () => openChat(undefined), []);
  const chat = currentChat.value;
  if (sessionId === undefined) return <NewChat />;
  if (chat?.sessionId !== sessionId) return <Loading />;
  return <OpenChat key={sessionId} chat={chat} target={{ runId: query.get("run") ?? "", callId: query.get("call") ?? "" }} />;
}

/** The answer to a command outside of a session. */
interface CommandReply {
  runId: string;
  command: string;
  text: string;
}

function NewChat() {
  const replies = useSignal<readonly CommandReply[]>([]);
  const send = async (message: OutgoingMessage) => {
    const run = await sendMessage({ ...message, sessionId: undefined, liveRunId: "" });
    if (run === undefined) return;
    if (run.sessionId !== "") return navigate(`/sessions/${run.sessionId}`);
    // A command that needs no session, such as /help.
    await attempt(async () => {
      replies.value = [...replies.value, { runId: run.runId, command: message.text, text: await readReply(run.runId) }];
    });
    discardRun(run.runId);
  };
  const waiting = outbox.value.filter((entry) => entry.sessionId === "");
  return (
    <div class={`chat${replies.value.length === 0 ? " new" : ""}`}>
      <h1 class="visually-hidden">New session</h1>
      <div class="chat-scroll">
        <div class="chat-column">
          {replies.value.map((reply) => (
            <article key={reply.runId} class="turn">
              <PromptView prompt={{ text: reply.command, images: [], media: [] }} />
              <p class="command-answer">{reply.text}</p>
            </article>
          ))}
          {waiting.length === 0 && replies.value.length === 0 ? (
            <EmptyState title="What should the agent do?">
              <p>Its programs and their calls appear here as they run.</p>
              <p class="hint">
                <kbd>Enter</kbd> sends · <kbd>/</kbd> lists commands · <kbd>Ctrl</kbd> <kbd>K</kbd> finds sessions and views
              </p>
            </EmptyState>
          ) : (
            waiting.map((entry) => <OutgoingView key={entry.key} entry={entry} />)
          )}
        </div>
      </div>
      <Composer sessionId="" liveTurn={undefined} onSend={(message) => void send(message)} />
    </div>
  );
}

/** What a link leads to; empty ids mean the end of the chat. */
interface Target {
  runId: string;
  callId: string;
}

function OpenChat({ chat, target }: { chat: ChatStore; target: Target }) {
  const { status, error, session } = chat.info.value;
  const live = chat.liveTurn;
  const listed = sessionList.value.byId.get(chat.sessionId) ?? session;
  useEffect(() => {
    if (listed !== undefined) document.title = `${sessionTitle(listed)} · Nacre`;
  }, [listed?.title]);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const { liveTurn } = chat;
      if (event.key !== "Escape" || event.defaultPrevented || liveTurn === undefined || document.querySelector("dialog[open]") !== null) return;
      // In other fields, Escape means: leave the field.
      const field = event.target instanceof Element ? event.target.closest("input, textarea, select") : null;
      if (field !== null && field.closest(".composer") === null) return;
      void stopRun(liveTurn.runId);
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [chat]);
  const wasLive = useRef(false);
  useEffect(() => {
    if (live?.status === "waiting") announce("The run waits for you");
    else if (live === undefined && wasLive.current) announce("The run has ended");
    wasLive.current = live !== undefined;
  }, [live?.status]);
  const send = async (message: OutgoingMessage) => {
    const run = await sendMessage({ ...message, sessionId: chat.sessionId, liveRunId: live?.runId ?? "" });
    // A command such as /new answers in another session.
    if (run !== undefined && run.sessionId !== "" && run.sessionId !== chat.sessionId) navigate(`/sessions/${run.sessionId}`);
  };
  return (
    <div class="chat">
      <PageHeader title={listed === undefined ? "Session" : sessionTitle(listed)}>{listed !== undefined && <SessionMenu session={listed} />}</PageHeader>
      {status === "loading" && <Loading />}
      {status === "failed" && <ErrorState error={error} onRetry={() => void chat.load()} />}
      {status === "missing" && (
        <EmptyState title="There is no such session">
          <p>It may have been deleted.</p>
          <Button onClick={() => navigate("/")}>Start a new session</Button>
        </EmptyState>
      )}
      {status === "ready" && <Transcript chat={chat} target={target} />}
      {status !== "missing" && <Composer sessionId={chat.sessionId} liveTurn={live} onSend={(message) => void send(message)} />}
    </div>
  );
}

function Transcript({ chat, target }: { chat: ChatStore; target: Target }) {
  const { runIds, nextCursor, isLoadingOlder } = chat.info.value;
  const scroll = useRef<HTMLDivElement>(null);
  const column = useRef<HTMLDivElement>(null);
  const isAtEnd = useSignal(target.runId === "");
  // Until the target of a link is in view, a short page is not the end that the reader follows.
  const isShowingTarget = useRef(target.runId !== "");
  // The first turn of the page; the loaded ones before it are not shown yet.
  const firstShown = useSignal("");
  const known = runIds.indexOf(firstShown.value);
  const start = known < 0 ? Math.max(0, runIds.length - FIRST_TURNS) : known;
  const nearby = useMemo(() => new NearbyTurns(), []);
  const before = useRef({ top: 0, height: 0 });
  const frame = useRef(0);

  // Follow the text while the reader is at its end.
  useLayoutEffect(() => {
    const [outer, inner] = [scroll.current, column.current];
    if (outer === null || inner === null) return;
    const follow = () => {
      if (isAtEnd.peek()) outer.scrollTop = outer.scrollHeight;
    };
    const observer = new ResizeObserver(follow);
    observer.observe(inner);
    observer.observe(outer);
    follow();
    return () => observer.disconnect();
  }, []);
  // Older turns above do not move what the reader sees.
  useLayoutEffect(() => {
    const outer = scroll.current;
    const { top, height } = before.current;
    if (outer === null || height === 0) return;
    before.current = { top: 0, height: 0 };
    if (!HAS_ANCHORS || top === 0 || isAtEnd.peek()) outer.scrollTop = top + outer.scrollHeight - height;
  }, [firstShown.value]);
  // One turn in each frame, so that scrolling never waits for many of them.
  const addOlder = () => {
    const outer = scroll.current;
    if (frame.current !== 0 || outer === null || outer.scrollTop >= NEAR_START_PIXELS) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      // A link may have shown older turns since the last drawing.
      const { runIds } = chat.info.peek();
      const older = runIds[runIds.indexOf(firstShown.peek()) - 1];
      if (older === undefined) return;
      before.current = { top: outer.scrollTop, height: outer.scrollHeight };
      firstShown.value = older;
    });
  };
  const loadOlder = () => {
    const isNear = scroll.current !== null && scroll.current.scrollTop < NEAR_START_PIXELS;
    if (isNear && start < MIN_WAITING_TURNS && nextCursor !== null && !isLoadingOlder) void attempt(() => chat.loadOlder());
  };
  useEffect(() => {
    // A new turn at the end does not remove this one.
    if (firstShown.peek() === "") firstShown.value = runIds[start] ?? "";
    addOlder();
    loadOlder();
  }, [start, runIds]);
  useEffect(
    () => () => {
      cancelAnimationFrame(frame.current);
      nearby.close();
    },
    [],
  );

  useEffect(() => {
    if (target.runId === "") return;
    isAtEnd.value = false;
    isShowingTarget.current = true;
    void showTarget(chat, target, scroll, firstShown).finally(() => {
      isShowingTarget.current = false;
    });
  }, [target.runId, target.callId]);

  const onScroll = () => {
    const outer = scroll.current;
    if (outer === null) return;
    isAtEnd.value = !isShowingTarget.current && outer.scrollHeight - outer.scrollTop - outer.clientHeight < NEAR_END_PIXELS;
    addOlder();
    loadOlder();
  };
  const toEnd = () => {
    isAtEnd.value = true;
    scroll.current?.scrollTo({ top: scroll.current.scrollHeight });
  };
  const waiting = outbox.value.filter((entry) => entry.sessionId === chat.sessionId && !isShown(chat, entry));
  const isEmpty = runIds.length === 0 && waiting.length === 0;
  return (
    <div class="chat-frame">
      <div class="chat-scroll" ref={scroll} onScroll={onScroll} tabIndex={0} role="log" aria-label="Conversation" aria-live="off">
        <div class="chat-column" ref={column}>
          {nextCursor !== null && start === 0 && (
            <p class="older">{isLoadingOlder ? <Spinner label="Loading older turns" /> : <Button variant="quiet" onClick={() => void attempt(() => chat.loadOlder())}>Show older turns</Button>}</p>
          )}
          {isEmpty && <EmptyState title="This session is empty" />}
          {runIds.slice(start).map((runId) => (
            <TurnView key={runId} turn={chat.turn(runId)} sessionId={chat.sessionId} nearby={nearby} />
          ))}
          {waiting.map((entry) => (
            <OutgoingView key={entry.key} entry={entry} />
          ))}
        </div>
      </div>
      {!isAtEnd.value && <IconButton icon="down" label="To the end" variant="plain" class="to-end icon-button" onClick={toEnd} />}
    </div>
  );
}

/** Load older turns until the target is there, then scroll to it. */
async function showTarget(chat: ChatStore, target: Target, scroll: { current: HTMLElement | null }, firstShown: Signal<string>): Promise<void> {
  while (!chat.info.value.runIds.includes(target.runId) && chat.info.value.nextCursor !== null) {
    if (!(await attempt(() => chat.loadOlder()))) return;
  }
  const { runIds } = chat.info.value;
  const index = runIds.indexOf(target.runId);
  if (index >= 0 && index < runIds.indexOf(firstShown.value || (runIds.at(-FIRST_TURNS) ?? ""))) firstShown.value = target.runId;
  await showElement(target, scroll);
}

/** Scroll to the target when it is drawn; the parts of a turn are not drawn in one frame. */
async function showElement(target: Target, scroll: { current: HTMLElement | null }): Promise<void> {
  const find = () => {
    const turn = scroll.current?.querySelector(`[data-run="${CSS.escape(target.runId)}"]`) ?? null;
    if (target.callId === "") return turn;
    // A turn that is far from the window gets its parts when it is near.
    turn?.scrollIntoView();
    return turn?.querySelector(`[data-call="${CSS.escape(target.callId)}"]`) ?? null;
  };
  for (let frames = TARGET_FRAMES; frames > 0 && find() === null; frames--) await nextFrame();
  const found = find() ?? scroll.current?.querySelector(`[data-run="${CSS.escape(target.runId)}"]`);
  if (found == null) return;
  found.classList.add("target");
  // Turns get their real heights when they come into view.
  for (let frames = SETTLING_FRAMES; frames >= 0; frames--) {
    found.scrollIntoView({ block: found.matches("[data-call]") ? "center" : "start" });
    await nextFrame();
  }
}

function nextFrame(): Promise<void> {
  return new Promise((resolve) => requestAnimationFrame(() => resolve()));
}

/** Tell whether a turn shows the message already. A queued turn shows the first message that it collects. */
function isShown(chat: ChatStore, entry: OutboxEntry): boolean {
  if (entry.runId === "" || isSteering(entry) || !chat.info.value.runIds.includes(entry.runId)) return false;
  const turn = chat.turn(entry.runId).value;
  return turn.prompt !== undefined && (turn.status !== "queued" || turn.prompt.text === entry.text);
}

const OUTGOING: Record<OutboxEntry["state"], string> = {
  sending: "Sending…",
  accepted: "Accepted",
  queued: QUEUED,
  consumed: "Read by the model",
  uncertain: "Uncertain",
  failed: "Not sent",
};

/** A message that starts a session leads to it, as the first attempt would have. */
async function resend(entry: OutboxEntry): Promise<void> {
  const run = await resendMessage(entry.key);
  if (run !== undefined && entry.sessionId === "" && run.sessionId !== "") navigate(`/sessions/${run.sessionId}`);
}

function OutgoingView({ entry }: { entry: OutboxEntry }) {
  const label = entry.state === "accepted" && entry.mode === "steer" ? "Accepted" : OUTGOING[entry.state];
  const isBad = entry.state === "failed" || entry.state === "uncertain";
  return (
    <div class={`prompt outgoing ${entry.state}`}>
      <div class="bubble">
        {entry.text}
        {entry.attachments.map((attachment) => (
          <span key={attachment.mediaId} class="file">
            {attachment.name}
          </span>
        ))}
      </div>
      <p class={isBad ? "problem" : "hint"} role="status">
        {label}
        {entry.problem !== "" && `: ${entry.problem}`}
      </p>
      {isBad && (
        <p class="outgoing-actions">
          <Button onClick={() => void resend(entry)}>Send again</Button>
          <Button variant="quiet" onClick={() => discardMessage(entry.key)}>
            Discard
          </Button>
        </p>
      )}
    </div>
  );
}
