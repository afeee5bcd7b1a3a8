/** Look after the gateway: health, workers, cells, servers, plugins, approvals, logs. */
import { useSignal } from "@preact/signals";

import { request } from "../api/client";
import type { ApprovalRequest } from "../api/types";
import { href, navigate, type ViewProps } from "../router";
import { hasScope } from "../state/auth";
import { attempt, notify } from "../state/notices";
import { Button, EmptyState, PageHeader } from "../ui/controls";
import { formatAge, formatBytes, formatCount, formatDuration, formatTime, showControls, stripAnsi } from "../model/format";
import { Logs } from "./logs";
import { DataTable, Fetched, JsonBlock, type Loaded, TabPanel, Tabs, useRequest } from "./parts";

const REFRESH_MS = 5000;

type Tab = "health" | "gateways" | "cells" | "servers" | "plugins" | "heartbeats" | "codex" | "approvals" | "logs";
const TABS: readonly { id: Tab; label: string }[] = [
  { id: "health", label: "Health" },
  { id: "gateways", label: "Gateways" },
  { id: "cells", label: "Cells" },
  { id: "servers", label: "MCP servers" },
  { id: "plugins", label: "Plugins" },
  { id: "heartbeats", label: "Heartbeats" },
  { id: "codex", label: "Codex" },
  { id: "approvals", label: "Approvals" },
  { id: "logs", label: "Logs" },
];

export default function Operate({ query }: ViewProps) {
  const tab = TABS.find(({ id }) => id === query.get("tab"))?.id ?? "health";
  const heartbeats = useRequest<{ heartbeats: Heartbeat[] }>("/api/heartbeats", undefined, REFRESH_MS);
  const threads = useRequest<{ threads: Thread[] }>("/api/codex/threads", undefined, REFRESH_MS);
  const gateways = useRequest<{ gateways: Gateway[] }>("/api/gateways", undefined, REFRESH_MS);
  // Of these, most gateways have none.
  const counts: Partial<Record<Tab, number>> = {
    gateways: gateways.data?.gateways.length ?? 0,
    heartbeats: heartbeats.data?.heartbeats.length ?? 0,
    codex: threads.data?.threads.length ?? 0,
  };
  const isShown = (id: Tab) => id === tab || counts[id] !== 0;
  return (
    <div class="operate-view">
      <PageHeader title="Operate">{hasScope("admin") && <DiagnosticsButton />}</PageHeader>
      <Tabs label="Operate" tabs={TABS.filter(({ id }) => isShown(id))} current={tab} onChange={(id) => navigate(`/operate?tab=${id}`, { replace: true })} />
      <TabPanel id={tab}>
        {tab === "health" && <Health />}
        {tab === "gateways" && <Gateways loaded={gateways} />}
        {tab === "cells" && <Cells />}
        {tab === "servers" && <Servers />}
        {tab === "plugins" && <Plugins />}
        {tab === "heartbeats" && <Heartbeats loaded={heartbeats} />}
        {tab === "codex" && <Threads loaded={threads} />}
        {tab === "approvals" && <Approvals />}
        {tab === "logs" && <Logs />}
      </TabPanel>
    </div>
  );
}

function DiagnosticsButton() {
  const isBusy = useSignal(false);
  const write = async () => {
    isBusy.value = true;
    await attempt(async () => {
      const answer = await request<{ message: string }>("/api/diagnostics", { method: "POST", body: {} });
      notify(answer.message);
    });
    isBusy.value = false;
  };
  return (
    <Button icon="download" disabled={isBusy.value} onClick={() => void write()}>
      Diagnostics bundle
    </Button>
  );
}

interface Worker {
  pid: number;
  state: string;
  memoryBytes: number | null;
  cells: number;
}

interface Status {
  version: string;
  pid: number;
  uptimeSeconds: number;
  memoryBytes: number | null;
  loop?: { stalls: number; maxStallMs: number };
  workers: Worker[];
  runs: Record<string, number>;
  cells: Record<string, number>;
  database: { kind: string; location: string; isReady: boolean; bytes?: number | null };
  disk?: { freeBytes: number; totalBytes: number } | null;
  auth: { mode: string };
  config: { path: string; problems: (string | { path: string; message: string })[] };
}

function Health() {
  const loaded = useRequest<Status>("/api/status", undefined, REFRESH_MS);
  return (
    <Fetched loaded={loaded}>
      {(status) => (
        <>
          {loaded.error !== undefined && <p class="problem">The gateway does not respond; these values are old.</p>}
          <div class="cards">
            <Card title="Gateway" badge={status.database.isReady ? ["good", "ready"] : ["bad", "not ready"]}>
              {[
                ["Version", status.version],
                ["Up for", formatAge(status.uptimeSeconds)],
                ["Process", String(status.pid)],
                ["Memory", showBytes(status.memoryBytes)],
                ["Sign-in", status.auth.mode],
              ]}
            </Card>
            <Card title="Work">
              {[
                ...Object.entries(status.runs).map(([name, count]): [string, string] => [`Runs, ${name}`, String(count)]),
                ...Object.entries(status.cells).map(([name, count]): [string, string] => [`Cells, ${name}`, String(count)]),
                ["Stalls of the event loop", status.loop === undefined ? "–" : `${status.loop.stalls}${status.loop.stalls > 0 ? `, longest ${formatDuration(status.loop.maxStallMs / 1000)}` : ""}`],
              ]}
            </Card>
            <Card title="Storage">
              {[
                ["Database", status.database.kind],
                ["Location", status.database.location],
                ["Size", showBytes(status.database.bytes ?? null)],
                ["Free on disk", showBytes(status.disk?.freeBytes ?? null)],
              ]}
            </Card>
            <Card title="Configuration" badge={status.config.problems.length === 0 ? ["good", "valid"] : ["bad", `${status.config.problems.length} problems`]}>
              {[
                ["File", status.config.path || "none"],
                ...status.config.problems.map((problem): [string, string] => (typeof problem === "string" ? ["Problem", problem] : [problem.path, problem.message])),
              ]}
            </Card>
          </div>
          <h2 class="section-title">Workers of the sandbox</h2>
          {status.workers.length === 0 ? (
            <p class="hint">No worker is started. The first program starts one.</p>
          ) : (
            <DataTable label="Workers" head={["Process", "State", "Memory", "Cells"]}>
              {status.workers.map((worker) => (
                <tr key={worker.pid}>
                  <td class="number">{worker.pid}</td>
                  <td>
                    <span class={`badge ${worker.state === "busy" ? "accent" : ""}`}>{worker.state}</span>
                  </td>
                  <td class="number">{showBytes(worker.memoryBytes)}</td>
                  <td class="number">{worker.cells}</td>
                </tr>
              ))}
            </DataTable>
          )}
        </>
      )}
    </Fetched>
  );
}

function Card({ title, badge, children }: { title: string; badge?: [string, string]; children: [string, string][] }) {
  return (
    <section class="card" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {badge !== undefined && <span class={`badge ${badge[0]}`}>{badge[1]}</span>}
      </header>
      <dl class="facts">
        {children.map(([name, value], index) => (
          <div key={`${name}${index}`}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

interface Gateway {
  id: string;
  name: string;
  address: string;
  machine: string;
  version: string;
  state: string;
  isThis: boolean;
  startedAt: number;
  secondsSinceRenewal: number;
  sessions: number;
  running: number;
  waiting: number;
  queued: number;
  inbox: number;
}

function Gateways({ loaded }: { loaded: Loaded<{ gateways: Gateway[] }> }) {
  return (
    <Fetched loaded={loaded}>
      {({ gateways }) =>
        gateways.length === 0 ? (
          <EmptyState title="This gateway is the only one">
            <p>Gateways that share a PostgreSQL database appear here.</p>
          </EmptyState>
        ) : (
          <DataTable label="Gateways" head={["Gateway", "State", "Version", "Started", "Sessions", "Running", "Waiting", "Queued", "Inbox"]}>
            {gateways.map((gateway) => (
              <tr key={gateway.id}>
                <td>
                  <strong>{gateway.name}</strong> {gateway.isThis && <span class="badge accent">this one</span>}
                  <p class="hint">{gateway.address || gateway.machine}</p>
                </td>
                <td>
                  <StateBadge state={gateway.state} />
                  {gateway.state !== "alive" && <p class="hint">renewed {formatAge(gateway.secondsSinceRenewal)} ago</p>}
                </td>
                <td>{gateway.version}</td>
                <td>{formatTime(gateway.startedAt)}</td>
                {[gateway.sessions, gateway.running, gateway.waiting, gateway.queued, gateway.inbox].map((count, index) => (
                  <td key={index} class="number">
                    {count}
                  </td>
                ))}
              </tr>
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

interface Cell {
  cellId: string;
  runId: string;
  sessionId: string;
  agentId: string;
  state: "running" | "waiting";
  reason: string | null;
  createdAt: number;
  expiresAt: number | null;
  canBeResumed: boolean;
  isStored: boolean;
  snapshotBytes: number | null;
  pendingCalls: { toolId: string; method: string; isAwaitingSomebody: boolean }[];
  language: string;
  code: string;
}

function Cells() {
  const loaded = useRequest<{ cells: Cell[] }>("/api/cells", undefined, REFRESH_MS / 2);
  const act = (cell: Cell, action: "resume" | "abort") =>
    void attempt(async () => {
      await request(`/api/cells/${encodeURIComponent(cell.cellId)}/${action}`, { method: "POST", body: {} });
      await loaded.reload();
    });
  return (
    <Fetched loaded={loaded}>
      {({ cells }) =>
        cells.length === 0 ? (
          <EmptyState title="No cell is active">
            <p>A program that runs or waits for something appears here.</p>
          </EmptyState>
        ) : (
          <ul class="card-list">
            {cells.map((cell) => (
              <CellCard key={cell.cellId} cell={cell} onAct={(action) => act(cell, action)} />
            ))}
          </ul>
        )
      }
    </Fetched>
  );
}

function CellCard({ cell, onAct }: { cell: Cell; onAct: (action: "resume" | "abort") => void }) {
  const facts = [
    cell.reason ?? "",
    cell.snapshotBytes ? `snapshot ${formatBytes(cell.snapshotBytes)}` : "",
    cell.isStored ? "survives a restart" : "",
    cell.pendingCalls.length > 0 ? `waits for ${cell.pendingCalls.map((call) => call.toolId || call.method).join(", ")}` : "",
    `started ${formatTime(cell.createdAt)}`,
    cell.expiresAt === null ? "" : `expires ${formatTime(cell.expiresAt)}`,
  ];
  return (
    <li class="card">
      <header>
        <h2>
          <span class={`badge ${cell.state === "running" ? "accent" : "warn"}`}>{cell.state}</span> <code>{cell.cellId}</code>
        </h2>
        <div class="form-actions">
          <a class="button plain" href={href(`/sessions/${cell.sessionId}?run=${cell.runId}`)}>
            Session
          </a>
          {cell.canBeResumed && <Button onClick={() => onAct("resume")}>Resume</Button>}
          <Button variant="danger" onClick={() => onAct("abort")}>
            Abort
          </Button>
        </div>
      </header>
      <p class="hint">{facts.filter(Boolean).join(" · ")}</p>
      <JsonBlock title="Program" text={cell.code} language={cell.language} />
    </li>
  );
}

interface Server {
  name: string;
  state: string;
  problem: string;
  transport: string;
  tools: number | null;
  listedAt: number | null;
  restarts: number;
  lastOutput: string[];
}

function Servers() {
  const loaded = useRequest<{ servers: Server[] }>("/api/servers", undefined, REFRESH_MS);
  const restart = (server: Server) =>
    void attempt(async () => {
      await request(`/api/servers/${encodeURIComponent(server.name)}/restart`, { method: "POST", body: {} });
      notify(`${server.name} was restarted.`);
      await loaded.reload();
    });
  return (
    <Fetched loaded={loaded}>
      {({ servers }) =>
        servers.length === 0 ? (
          <EmptyState title="No MCP server is configured">
            <p>
              Add one in the <a href={href("/settings")}>settings</a>, under <code>tools.mcp.servers</code>.
            </p>
          </EmptyState>
        ) : (
          <DataTable label="MCP servers" head={["Server", "State", "Tools", "Listed", "Restarts", ""]}>
            {servers.map((server) => (
              <tr key={server.name}>
                <td>
                  <strong>{server.name}</strong>
                  <span class="hint"> {server.transport}</span>
                  {server.problem !== "" && <p class="problem">{showControls(stripAnsi(server.problem))}</p>}
                  {server.state === "failed" && server.lastOutput.length > 0 && <pre class="last-output">{showControls(stripAnsi(server.lastOutput.join("\n")))}</pre>}
                </td>
                <td>
                  <StateBadge state={server.state} />
                </td>
                <td class="number">{server.tools ?? "–"}</td>
                <td>{server.listedAt === null ? "–" : formatTime(server.listedAt)}</td>
                <td class="number">{server.restarts}</td>
                <td>
                  {hasScope("admin") && <Button onClick={() => restart(server)}>Restart</Button>}
                </td>
              </tr>
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

interface Plugin {
  id: string;
  state: string;
  version: string;
  description: string;
  tools: string[];
  hooks: string[];
  problem: string;
}

function Plugins() {
  const loaded = useRequest<{ plugins: Plugin[] }>("/api/plugins");
  return (
    <Fetched loaded={loaded}>
      {({ plugins }) =>
        plugins.length === 0 ? (
          <EmptyState title="No plugin is installed">
            <p>
              Name packages or folders of plugins in the <a href={href("/settings")}>settings</a>, under <code>plugins</code>.
            </p>
          </EmptyState>
        ) : (
          <DataTable label="Plugins" head={["Plugin", "State", "Tools", "Hooks"]}>
            {plugins.map((plugin) => (
              <tr key={plugin.id}>
                <td>
                  <strong>{plugin.id}</strong> <span class="hint">{plugin.version}</span>
                  <p class="hint">{showControls(plugin.description)}</p>
                  {plugin.problem !== "" && <p class="problem">{showControls(plugin.problem)}</p>}
                </td>
                <td>
                  <StateBadge state={plugin.state} />
                </td>
                <td>
                  {plugin.tools.map((name) => (
                    <code key={name} class="badge">
                      {name}
                    </code>
                  ))}
                </td>
                <td>{plugin.hooks.join(", ") || "–"}</td>
              </tr>
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

interface Heartbeat {
  agentId: string;
  everySeconds: number;
  nextTime: number;
  last: { status: string; time: number; reason: string; runId: string; summary: string; text: string; error: string } | null;
}

function Heartbeats({ loaded }: { loaded: Loaded<{ heartbeats: Heartbeat[] }> }) {
  const wake = (agentId: string) =>
    void attempt(async () => {
      const { status, reason } = await request<{ status: string; reason: string }>(`/api/heartbeats/${encodeURIComponent(agentId)}`, { method: "POST" });
      notify(status === "skipped" ? `${agentId} was not woken: ${reason}.` : `${agentId} is awake.`);
      await loaded.reload();
    });
  return (
    <Fetched loaded={loaded}>
      {({ heartbeats }) =>
        heartbeats.length === 0 ? (
          <EmptyState title="No agent has heartbeats">
            <p>An agent with heartbeats is woken without a message, again and again.</p>
          </EmptyState>
        ) : (
          <DataTable label="Heartbeats" head={["Agent", "Every", "Next", "Last", ""]}>
            {heartbeats.map(({ agentId, everySeconds, nextTime, last }) => (
              <tr key={agentId}>
                <td>
                  <strong>{agentId}</strong>
                </td>
                <td>{formatAge(everySeconds)}</td>
                <td>{formatTime(nextTime)}</td>
                <td>
                  {last === null ? (
                    "–"
                  ) : (
                    <>
                      <span class={`badge ${last.status === "failed" ? "bad" : ""}`}>{last.status}</span> {formatTime(last.time)}
                      <p class="hint">{showControls(last.error || last.text || last.summary || last.reason)}</p>
                    </>
                  )}
                </td>
                <td class="row-actions">
                  {last !== null && last.runId !== "" && <a href={href(`/runs/${last.runId}`)}>Run</a>}
                  {hasScope("run") && <Button onClick={() => wake(agentId)}>Wake now</Button>}
                </td>
              </tr>
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

interface Thread {
  sessionId: string;
  threadId: string;
  model: string;
  cwd: string;
  usedTokens: number;
  windowTokens: number;
  updatedAt: number;
}

function Threads({ loaded }: { loaded: Loaded<{ threads: Thread[] }> }) {
  return (
    <Fetched loaded={loaded}>
      {({ threads }) =>
        threads.length === 0 ? (
          <EmptyState title="No session has a thread in Codex">
            <p>An agent that runs in Codex has one thread for each session.</p>
          </EmptyState>
        ) : (
          <DataTable label="Threads of Codex" head={["Thread", "Model", "Context", "Used", ""]}>
            {threads.map((thread) => (
              <tr key={thread.sessionId}>
                <td>
                  <code>{thread.threadId}</code>
                  <p class="hint">{thread.cwd}</p>
                </td>
                <td>{thread.model}</td>
                <td class="number">
                  {formatCount(thread.usedTokens)}
                  {thread.windowTokens > 0 && ` of ${formatCount(thread.windowTokens)}`} tokens
                </td>
                <td>{formatTime(thread.updatedAt)}</td>
                <td>
                  <a href={href(`/sessions/${thread.sessionId}`)}>Session</a>
                </td>
              </tr>
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

const GOOD_STATES = new Set(["alive", "ready", "running", "connected", "loaded", "ok"]);
const BAD_STATES = new Set(["dead", "failed", "unavailable", "error", "stopped"]);

function StateBadge({ state }: { state: string }) {
  const tone = GOOD_STATES.has(state) ? "good" : BAD_STATES.has(state) ? "bad" : "";
  return <span class={`badge ${tone}`}>{state}</span>;
}

interface PastApproval extends ApprovalRequest {
  state: string;
  answer: { answer: string; how?: string; reason?: string } | null;
  answeredAt: number | null;
}

const STATES: Record<string, string> = { given_up: "not answered" };

function Approvals() {
  const loaded = useRequest<{ pending: ApprovalRequest[]; past: PastApproval[] }>("/api/approvals", { all: true }, REFRESH_MS);
  return (
    <Fetched loaded={loaded}>
      {({ pending, past }) =>
        pending.length + past.length === 0 ? (
          <EmptyState title="No approval requests yet">
            <p>Requests for approval and their answers appear here.</p>
          </EmptyState>
        ) : (
          <DataTable label="Approvals" head={["Requested", "Tool", "Reason", "Answer", ""]}>
            {pending.map((each) => (
              <ApprovalRow key={each.approvalId} approval={each} tone="warn" answer="open" />
            ))}
            {past.map((each) => (
              <ApprovalRow key={each.approvalId} approval={each} tone={each.state === "allowed" ? "good" : "bad"} answer={[STATES[each.state] ?? each.state, each.answer?.how, each.answer?.reason].filter(Boolean).join(", ")} />
            ))}
          </DataTable>
        )
      }
    </Fetched>
  );
}

function ApprovalRow({ approval, tone, answer }: { approval: ApprovalRequest; tone: string; answer: string }) {
  return (
    <tr>
      <td>{formatTime(approval.createdAt)}</td>
      <td>
        <code>{showControls(approval.toolName)}</code>
      </td>
      <td>{showControls(approval.reason)}</td>
      <td>
        <span class={`badge ${tone}`}>{answer}</span>
      </td>
      <td>
        <a href={href(`/runs/${approval.runId}`)}>Run</a>
      </td>
    </tr>
  );
}

function showBytes(bytes: number | null | undefined): string {
  return bytes === null || bytes === undefined ? "–" : formatBytes(bytes);
}
