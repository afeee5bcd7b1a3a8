/** The sessions in the side bar: live states, search over all texts, actions. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { describeError, request } from "../api/client";
import type { SearchHit, SessionInfo } from "../api/types";
import { showControls } from "../model/format";
import { groupByDay, sessionTitle } from "../model/session_list";
import { href, location } from "../router";
import { loadMoreSessions, loadSessions, sessionList, sessions } from "../state/sessions";
import { Button, ErrorState, Spinner } from "./controls";
import { SessionMenu } from "./session_menu";

const SEARCH_DELAY_MS = 200;
const MAX_HITS = 30;

export function SessionList() {
  const query = useSignal("");
  return (
    <>
      <div class="session-search" role="search">
        <input
          type="search"
          placeholder="Search sessions"
          aria-label="Search sessions"
          value={query.value}
          onInput={(event) => (query.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.stopPropagation();
            query.value = "";
          }}
        />
      </div>
      {query.value.trim() === "" ? <AllSessions /> : <SearchResults query={query.value.trim()} />}
    </>
  );
}

function AllSessions() {
  const { status, nextCursor, error } = sessionList.value;
  if (status === "loading") {
    return (
      <div class="session-list loading">
        <Spinner />
      </div>
    );
  }
  if (status === "failed") {
    return (
      <div class="session-list">
        <ErrorState error={error} onRetry={() => void loadSessions()} />
      </div>
    );
  }
  return (
    <div class="session-list">
      {sessions.value.length === 0 && <p class="hint">Your sessions will be listed here.</p>}
      {groupByDay(sessions.value, Date.now() / 1000).map((group) => (
        <section key={group.title} aria-label={group.title}>
          <h2>{group.title}</h2>
          <ul>
            {group.sessions.map((session) => (
              <SessionRow key={session.id} session={session} />
            ))}
          </ul>
        </section>
      ))}
      {nextCursor !== null && (
        <Button variant="quiet" onClick={() => void loadMoreSessions()}>
          Show older sessions
        </Button>
      )}
    </div>
  );
}

const STATES: Record<string, string> = { queued: "queued", running: "running", waiting: "waits for you" };

function SessionRow({ session }: { session: SessionInfo }) {
  const path = `/sessions/${session.id}`;
  const state = STATES[session.state ?? ""];
  return (
    <li class="session-row">
      <a href={href(path)} aria-current={location.value.path === path ? "page" : undefined}>
        <span class="session-title">{sessionTitle(session)}</span>
        {state !== undefined && <span class={`session-state ${session.state ?? ""}`} role="img" aria-label={state} title={state} />}
      </a>
      <SessionMenu session={session} />
    </li>
  );
}

function SearchResults({ query }: { query: string }) {
  const hits = useSignal<readonly SearchHit[] | undefined>(undefined);
  const problem = useSignal("");
  useEffect(() => {
    const controller = new AbortController();
    const search = async () => {
      try {
        const found = await request<{ hits: SearchHit[] }>("/api/search", { query: { q: query, limit: MAX_HITS }, signal: controller.signal });
        // The title is often the start of the first message, which is found, too.
        const withMessages = new Set(found.hits.filter(({ role }) => role !== "title").map(({ sessionId }) => sessionId));
        hits.value = found.hits.filter(({ role, sessionId }) => role !== "title" || !withMessages.has(sessionId));
        problem.value = "";
      } catch (error) {
        if (!controller.signal.aborted) problem.value = describeError(error);
      }
    };
    const timer = setTimeout(() => void search(), SEARCH_DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [query]);
  if (problem.value !== "") return <div class="session-list"><p class="problem">{problem.value}</p></div>;
  if (hits.value === undefined) {
    return (
      <div class="session-list loading">
        <Spinner />
      </div>
    );
  }
  return (
    <div class="session-list">
      {hits.value.length === 0 && <p class="hint">Nothing was found for “{query}”.</p>}
      <ul aria-label="Search results">
        {hits.value.map((hit, index) => (
          <li key={index} class="session-row hit">
            <a href={href(`/sessions/${hit.sessionId}${hit.runId ? `?run=${hit.runId}` : ""}`)}>
              {hit.role !== "title" && <span class="session-title">{showControls(hit.title || "Session")}</span>}
              <span class={hit.role === "title" ? "session-title" : "snippet"}>
                {hit.snippet.map((part, at) => (part.isMatch ? <mark key={at}>{part.text}</mark> : <span key={at}>{showControls(part.text)}</span>))}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </div>
  );
}
