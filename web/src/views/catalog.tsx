/** The tools of an agent: search with scores, schema, declaration, and manual calls. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { ApiError, describeError, request } from "../api/client";
import type { Json, RunInfo } from "../api/types";
import { href, navigate, type ViewProps } from "../router";
import { onEvents } from "../state/live";
import { Button, Dialog, EmptyState, ErrorState, IconButton, Loading, PageHeader, Spinner } from "../ui/controls";
import { formatBytes, showControls } from "../model/format";
import { Icon } from "../ui/icons";
import { exampleOf, parseJson, type Schema } from "./json_schema";
import { AgentSelect, Fetched, JsonBlock, Prose, TabPanel, Tabs, useRequest } from "./parts";

const SEARCH_DELAY_MS = 150;
const MAX_LISTED = 200;

interface Tool {
  id: string;
  name: string;
  description: string;
  source: string;
  owner: string;
  parameters: Schema;
  needsApproval: string;
}

interface Term {
  term: string;
  field: string;
  weight: number;
  score: number;
}

interface Hit {
  toolId: string;
  toolName: string;
  description: string;
  source: string;
  score: number;
  explanation?: { terms: Term[]; meaning: number | null };
}

interface Surface {
  agentId: string;
  surface: string;
  visible: { name: string; description: string; bytes: number }[];
  visibleBytes: number;
  visibleTokens: number;
  catalog: { tools: number; bytes: number; tokens: number; sources: Record<string, number> };
}

interface ToolDetails {
  toolId: string;
  toolName: string;
  description: string;
  source: string;
  owner: string;
  parameters: Schema;
  outputSchema: Json;
  declaration: string;
  needsApproval: string;
  policy: string;
  seenAs: Json;
}

export default function Catalog({ query }: ViewProps) {
  const chosen = query.get("tool") ?? "";
  const text = query.get("q") ?? "";
  const agentId = query.get("agent") ?? "";
  const openTool = (toolId: string) => navigate(address(text, toolId, agentId), { replace: chosen !== "" });
  return (
    <div class={`catalog-view${chosen === "" ? "" : " has-chosen"}`}>
      <PageHeader title="Catalog">
        <AgentSelect value={agentId} onChange={(id) => navigate(address(text, chosen, id), { replace: true })} />
      </PageHeader>
      <SurfaceSummary agentId={agentId} />
      <div class={`split${chosen === "" ? "" : " has-chosen"}`}>
        <section class="split-list" aria-label="Tools">
          <SearchBox text={text} onSearch={(next) => navigate(address(next, chosen, agentId), { replace: true })} />
          {text === "" ? <AllTools agentId={agentId} chosen={chosen} onOpen={openTool} /> : <Hits agentId={agentId} text={text} chosen={chosen} onOpen={openTool} />}
        </section>
        <section class="split-main" aria-label="Tool">
          {chosen === "" ? (
            <EmptyState title="Choose a tool">
              <p>You see its declaration, its schema, and you can call it.</p>
            </EmptyState>
          ) : (
            <ToolPage key={`${agentId} ${chosen}`} agentId={agentId} toolId={chosen} onBack={() => navigate(address(text, "", agentId))} />
          )}
        </section>
      </div>
    </div>
  );
}

function address(text: string, toolId: string, agentId: string): string {
  const parameters = new URLSearchParams();
  if (agentId !== "") parameters.set("agent", agentId);
  if (text !== "") parameters.set("q", text);
  if (toolId !== "") parameters.set("tool", toolId);
  const query = parameters.toString();
  return query === "" ? "/catalog" : `/catalog?${query}`;
}

/** The default agent needs no name. */
function ofAgent(agentId: string): { agentId?: string } {
  return agentId === "" ? {} : { agentId };
}

/** What the model sees against what is behind it. */
function SurfaceSummary({ agentId }: { agentId: string }) {
  const loaded = useRequest<Surface>("/api/catalog/surface", ofAgent(agentId));
  const isOpen = useSignal(false);
  if (loaded.data === undefined) return loaded.error === undefined ? <div class="surface-summary" /> : null;
  const { visible, visibleBytes, visibleTokens, catalog } = loaded.data;
  const most = Math.max(visibleBytes, catalog.bytes, 1);
  const saved = catalog.bytes > visibleBytes ? Math.round((1 - visibleBytes / catalog.bytes) * 100) : 0;
  return (
    <section class="surface-summary" aria-label="What the model sees">
      <SizeBar label="The model sees" names={visible.map((tool) => tool.name).join(", ")} count={visible.length} bytes={visibleBytes} tokens={visibleTokens} share={visibleBytes / most} isAccent onShow={() => (isOpen.value = true)} />
      {isOpen.value && (
        <Dialog title="What the model sees" class="wide" onClose={() => (isOpen.value = false)}>
          <header class="dialog-header">
            <h2>What the model sees</h2>
            <IconButton icon="close" label="Close" onClick={() => (isOpen.value = false)} />
          </header>
          {visible.slice(0, MAX_LISTED).map((tool) => (
            <JsonBlock key={tool.name} title={`${tool.name}, ${formatBytes(tool.bytes)}`} text={tool.description} language="" />
          ))}
        </Dialog>
      )}
      <SizeBar label="Behind it" names={Object.entries(catalog.sources).filter(([, count]) => count > 0).map(([name, count]) => `${count} ${name}`).join(", ")} count={catalog.tools} bytes={catalog.bytes} tokens={catalog.tokens} share={catalog.bytes / most} />
      {saved > 0 && <p class="saved"><strong>{saved}%</strong> less to send with each request</p>}
    </section>
  );
}

interface SizeBarProps {
  label: string;
  names: string;
  count: number;
  bytes: number;
  tokens: number;
  share: number;
  isAccent?: boolean;
  onShow?: () => void;
}

function SizeBar({ label, names, count, bytes, tokens, share, isAccent = false, onShow }: SizeBarProps) {
  return (
    <div class="size-bar">
      <div class="size-bar-text">
        <span>{label}</span>
        <strong>
          {count} {count === 1 ? "tool" : "tools"}
        </strong>
        <span class="hint">
          {formatBytes(bytes)}, {tokens.toLocaleString("en")} tokens
        </span>
      </div>
      <div class={`meter${isAccent ? " accent" : ""}`} aria-hidden="true">
        <span style={{ width: `${Math.max(share * 100, 0.5)}%` }} />
      </div>
      <p class="hint">{names}</p>
      {onShow !== undefined && (
        <Button variant="quiet" class="show-definitions" onClick={onShow}>
          Show the definitions
        </Button>
      )}
    </div>
  );
}

function SearchBox({ text, onSearch }: { text: string; onSearch: (text: string) => void }) {
  const draft = useSignal(text);
  const timer = useRef(0);
  const change = (value: string) => {
    draft.value = value;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onSearch(value.trim()), SEARCH_DELAY_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <div class="search-box">
      <Icon name="search" />
      <input type="search" placeholder="Search tools as the model does" aria-label="Search tools" value={draft.value} onInput={(event) => change(event.currentTarget.value)} />
    </div>
  );
}

function AllTools({ agentId, chosen, onOpen }: { agentId: string; chosen: string; onOpen: (toolId: string) => void }) {
  const loaded = useRequest<{ tools: Tool[] }>("/api/tools", ofAgent(agentId));
  return (
    <Fetched loaded={loaded}>
      {({ tools }) =>
        tools.length === 0 ? (
          <EmptyState title="There are no tools" />
        ) : (
          <>
            <ul class="tool-list">
              {tools.slice(0, MAX_LISTED).map((tool) => (
                <ToolItem key={tool.id} name={tool.name} description={tool.description} source={tool.owner || tool.source} isChosen={tool.id === chosen} onOpen={() => onOpen(tool.id)} />
              ))}
            </ul>
            {tools.length > MAX_LISTED && <p class="hint list-note">{tools.length - MAX_LISTED} more. Search to find them.</p>}
          </>
        )
      }
    </Fetched>
  );
}

function Hits({ agentId, text, chosen, onOpen }: { agentId: string; text: string; chosen: string; onOpen: (toolId: string) => void }) {
  const loaded = useRequest<{ hits: Hit[] }>("/api/catalog/search", { q: text, limit: 50, ...ofAgent(agentId) });
  return (
    <Fetched loaded={loaded}>
      {({ hits }) => {
        if (hits.length === 0) return <EmptyState title="No tool matches">{<p>Try other words: names, purposes or parameters.</p>}</EmptyState>;
        const best = Math.max(...hits.map((hit) => hit.score), 1e-9);
        return (
          <ol class="tool-list">
            {hits.map((hit) => (
              <ToolItem key={hit.toolId} name={hit.toolName} description={hit.description} source={hit.source} isChosen={hit.toolId === chosen} onOpen={() => onOpen(hit.toolId)}>
                <Explanation hit={hit} share={hit.score / best} />
              </ToolItem>
            ))}
          </ol>
        );
      }}
    </Fetched>
  );
}

interface ToolItemProps {
  name: string;
  description: string;
  source: string;
  isChosen: boolean;
  onOpen: () => void;
  children?: preact.ComponentChildren;
}

function ToolItem({ name, description, source, isChosen, onOpen, children }: ToolItemProps) {
  return (
    <li class={isChosen ? "chosen" : ""}>
      <button type="button" class="tool-item" aria-current={isChosen ? "true" : undefined} onClick={onOpen}>
        <span class="tool-head">
          <code>{showControls(name)}</code>
          <span class="badge">{showControls(source)}</span>
        </span>
        <span class="tool-description">
          <Prose text={showControls(description)} />
        </span>
      </button>
      {children}
    </li>
  );
}

const REASONS: Record<string, string> = { coverage: "words that were found", related: "related words" };

/** Why a hit stands where it stands. */
function Explanation({ hit, share }: { hit: Hit; share: number }) {
  const terms = hit.explanation?.terms ?? [];
  const meaning = hit.explanation?.meaning ?? null;
  return (
    <details class="explanation">
      <summary>
        <span class="meter" aria-hidden="true">
          <span style={{ width: `${share * 100}%` }} />
        </span>
        <span class="hint">score {hit.score.toFixed(2)}</span>
      </summary>
      <table class="data-table">
        <thead>
          <tr>
            <th scope="col">Word</th>
            <th scope="col">Found in</th>
            <th scope="col">Share</th>
            <th scope="col">Score</th>
          </tr>
        </thead>
        <tbody>
          {terms.map((term) => (
            <tr key={`${term.term}:${term.field}`}>
              <td>{term.term === term.field ? REASONS[term.term] ?? term.term : <code>{term.term}</code>}</td>
              <td>{term.term === term.field ? "" : term.field}</td>
              <td>{Math.round(term.weight * 100)}%</td>
              <td>{term.score.toFixed(2)}</td>
            </tr>
          ))}
          {meaning !== null && (
            <tr>
              <td colSpan={3}>Similar in meaning</td>
              <td>{meaning.toFixed(2)}</td>
            </tr>
          )}
        </tbody>
      </table>
    </details>
  );
}

type ToolTab = "declaration" | "schema" | "try";

function ToolPage({ agentId, toolId, onBack }: { agentId: string; toolId: string; onBack: () => void }) {
  const loaded = useRequest<ToolDetails>(`/api/catalog/tools/${encodeURIComponent(toolId)}`, ofAgent(agentId));
  const tab = useSignal<ToolTab>("declaration");
  if (loaded.error !== undefined) return <ErrorState error={loaded.error} onRetry={() => void loaded.reload()} />;
  const tool = loaded.data;
  if (tool === undefined) return <Loading />;
  return (
    <article class="tool-page">
      <Button class="back" variant="quiet" icon="chevron" onClick={onBack}>
        All tools
      </Button>
      <header>
        <h2>
          <code>{showControls(tool.toolName)}</code>
        </h2>
        <code class="hint">{showControls(tool.toolId)}</code>
        <p>
          <Prose text={showControls(tool.description)} />
        </p>
        <p class="badges">
          <span class="badge">{tool.source}</span>
          {tool.owner !== "" && tool.owner !== tool.source && <span class="badge">{tool.owner}</span>}
          {tool.needsApproval === "" ? <span class="badge good">no approval needed</span> : <span class="badge warn">asks first: {tool.needsApproval}</span>}
        </p>
      </header>
      <Tabs
        label="Tool"
        tabs={[
          { id: "declaration", label: "Declaration" },
          { id: "schema", label: "Schema" },
          { id: "try", label: "Try it" },
        ]}
        current={tab.value}
        onChange={(id) => (tab.value = id)}
      />
      <TabPanel id={tab.value}>
        {tab.value === "declaration" && <JsonBlock title="Declaration for programs" text={tool.declaration} language="typescript" />}
        {tab.value === "schema" && (
          <>
            <JsonBlock title="Input schema" value={tool.parameters as Json} />
            {tool.outputSchema !== null && tool.outputSchema !== undefined && <JsonBlock title="Output schema" value={tool.outputSchema} />}
            <JsonBlock title="Its definition, if the model saw it directly" value={tool.seenAs} />
          </>
        )}
        {tab.value === "try" && <TryCall tool={tool} agentId={agentId} />}
      </TabPanel>
    </article>
  );
}

interface CallAnswer {
  runId: string;
  sessionId: string;
  state: string;
  result?: Json;
  error?: string;
}

/** Call a tool, with policy, approvals and a record as for any call. */
function TryCall({ tool, agentId }: { tool: ToolDetails; agentId: string }) {
  const draft = useSignal(JSON.stringify(exampleOf(tool.parameters), null, 2));
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const answer = useSignal<CallAnswer | undefined>(undefined);

  useEffect(
    () =>
      onEvents((events) => {
        const waiting = answer.peek();
        if (waiting === undefined || waiting.state !== "waiting") return;
        if (events.some((event) => event.runId === waiting.runId && /^run\.(completed|failed|aborted)$/.test(event.kind))) void refresh(waiting);
      }),
    [],
  );
  const refresh = async (waiting: CallAnswer) => {
    const run = await request<RunInfo>(`/api/runs/${waiting.runId}`);
    answer.value = { ...waiting, state: run.state, result: run.result?.text ?? null, error: run.result?.error ?? "" };
  };
  const call = async () => {
    const parsed = parseJson(draft.value);
    if (parsed.problem !== "") {
      problem.value = parsed.problem;
      return;
    }
    problem.value = "";
    answer.value = undefined;
    isBusy.value = true;
    try {
      answer.value = await request<CallAnswer>("/api/catalog/call", { method: "POST", body: { toolId: tool.toolId, input: parsed.value, ...ofAgent(agentId) } });
    } catch (error) {
      problem.value = error instanceof ApiError && error.path !== "" ? `${error.path}: ${error.message}` : describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  const current = answer.value;
  return (
    <form
      class="try-call"
      onSubmit={(event) => {
        event.preventDefault();
        void call();
      }}
    >
      <label for="call-input">Input, as JSON</label>
      <textarea id="call-input" class="code-input" rows={Math.min(Math.max(draft.peek().split("\n").length + 1, 4), 16)} spellcheck={false} value={draft.value} aria-describedby="call-problem" onInput={(event) => (draft.value = event.currentTarget.value)} />
      <p id="call-problem" class="problem" role="alert">
        {problem.value}
      </p>
      <div class="form-actions">
        <Button type="submit" variant="primary" icon="play" disabled={isBusy.value}>
          {isBusy.value ? "Calling…" : "Call"}
        </Button>
        {isBusy.value && <Spinner />}
      </div>
      {current !== undefined && <CallResult answer={current} />}
    </form>
  );
}

function CallResult({ answer }: { answer: CallAnswer }) {
  return (
    <div class="call-result" aria-live="polite">
      <p>
        <span class={`badge ${answer.state === "completed" ? "good" : answer.state === "waiting" ? "warn" : "bad"}`}>{answer.state}</span>
        {answer.state === "waiting" && <span class="hint"> The call waits for an approval.</span>}
        {answer.runId !== "" && <a href={href(`/runs/${answer.runId}`)}>Timeline</a>}
      </p>
      {answer.error !== undefined && answer.error !== null && answer.error !== "" && <p class="problem">{answer.error}</p>}
      {answer.result !== undefined && answer.result !== null && <JsonBlock title="Result" value={answer.result} />}
    </div>
  );
}
