/** Parts that several views share: data from the gateway, blocks of code and JSON, facts. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";

import { request, type RequestOptions } from "../api/client";
import type { Json } from "../api/types";
import { Code, PART_CHARACTERS, PartFooter } from "../ui/code";
import { CopyButton, ErrorState, Loading } from "../ui/controls";


export interface Loaded<T> {
  data: T | undefined;
  error: unknown;
  isLoading: boolean;
  reload: () => Promise<void>;
}

/** Fetch a document, again after `reload`, and every `everyMs` while the page is visible. */
export function useRequest<T>(path: string, query?: RequestOptions["query"], everyMs?: number): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const isLoading = useSignal(true);
  const latest = useRef(0);
  const key = path + JSON.stringify(query ?? {});
  const reload = useCallback(async () => {
    latest.current += 1;
    const number = latest.current;
    isLoading.value = true;
    try {
      const answer = await request<T>(path, query === undefined ? {} : { query });
      if (number !== latest.current) return;
      data.value = answer;
      error.value = undefined;
    } catch (problem) {
      if (number === latest.current) error.value = problem;
    }
    if (number === latest.current) isLoading.value = false;
  }, [key]);
  useEffect(() => {
    data.value = undefined;
    void reload();
    if (everyMs === undefined) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [reload, everyMs]);
  return { data: data.value, error: error.value, isLoading: isLoading.value, reload };
}

/** The content of a request, or its state. Old data stays while new data is fetched. */
export function Fetched<T>({ loaded, children }: { loaded: Loaded<T>; children: (data: T) => ComponentChildren }) {
  if (loaded.data !== undefined) return <>{children(loaded.data)}</>;
  if (loaded.error !== undefined) return <ErrorState error={loaded.error} onRetry={() => void loaded.reload()} />;
  return <Loading />;
}

interface Agents {
  agents: { id: string; name: string; isDefault: boolean }[];
}

/** Choose an agent, if there are several. The default one is the empty id. */
export function AgentSelect({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  const agents = useRequest<Agents>("/api/agents");
  if ((agents.data?.agents.length ?? 0) < 2) return null;
  return (
    <label class="agent-select">
      <span class="hint">Agent</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {agents.data?.agents.map((agent) => (
          <option key={agent.id} value={agent.isDefault ? "" : agent.id}>
            {agent.name}
          </option>
        ))}
      </select>
    </label>
  );
}

interface BlockProps {
  title: string;
  value?: Json;
  text?: string;
  language?: string;
}

/** Code or JSON with a title and a copy button. A long one is shown in parts, and never enters the page whole. */
export function JsonBlock({ title, value, text, language = "json" }: BlockProps) {
  const start = useSignal(0);
  const full = useMemo(() => text ?? (typeof value === "string" ? value : JSON.stringify(value, null, 2)), [text, value]);
  const offset = start.value < full.length ? start.value : 0;
  const shown = full.slice(offset, offset + PART_CHARACTERS);
  return (
    <section class="block" aria-label={title}>
      <header>
        <h3>{title}</h3>
        <CopyButton text={full} label={`Copy ${title.toLowerCase()}`} />
      </header>
      <Code code={shown} language={typeof value === "string" ? "" : language} />
      {full.length > PART_CHARACTERS && <PartFooter offset={offset} length={shown.length} total={full.length} onGo={(next) => (start.value = next)} />}
    </section>
  );
}

/** Tabs of a view; the arrow keys move between them. */
export function Tabs<T extends string>({ label, tabs, current, onChange }: { label: string; tabs: readonly { id: T; label: string; count?: number | undefined }[]; current: T; onChange: (id: T) => void }) {
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = tabs.findIndex((tab) => tab.id === current);
    const next = tabs[(index + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChange(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          id={`tab-${tab.id}`}
          role="tab"
          aria-selected={tab.id === current}
          aria-controls={tab.id === current ? `panel-${tab.id}` : undefined}
          tabIndex={tab.id === current ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.label}
          {tab.count !== undefined && tab.count > 0 && <span class="badge">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return (
    <div class="tab-panel" role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} tabIndex={-1}>
      {children}
    </div>
  );
}

/** A table that scrolls sideways on a narrow screen. */
export function DataTable({ label, head, children }: { label: string; head: readonly string[]; children: ComponentChildren }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="data-table">
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col">
                {name === "" ? <span class="visually-hidden">Actions</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** A sentence of a description, with the words between backticks as code. */
export function Prose({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
