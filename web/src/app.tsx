/** The frame of the app: sign-in, side bar, the view of the address, messages. */
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { Chat } from "./chat/chat";
import { formatClock } from "./model/format";
import { location, matchPath, type Route, type View } from "./router";
import { authStatus } from "./state/auth";
import { ApprovalTray } from "./ui/approval_tray";
import { ConnectionBanner, Notices } from "./ui/messages";
import { Boundary, Button, EmptyState, Loading } from "./ui/controls";
import { whenIdle } from "./ui/gradual";
import { highlight } from "./ui/highlight";
import { renderMarkdown } from "./ui/markdown";
import { Palette } from "./ui/palette";
import { Sidebar } from "./ui/sidebar";
import { SignIn } from "./views/sign_in";

const chat = () => Promise.resolve({ default: Chat });

/** All views. A view that is imported here by name belongs to the first view; the others are chunks. */
const ROUTES: readonly Route[] = [
  { pattern: "/", title: "New session", load: chat },
  { pattern: "/sessions/:sessionId", title: "Chat", load: chat },
  { pattern: "/runs/:runId", title: "Run", load: () => import("./views/timeline") },
  { pattern: "/catalog", title: "Catalog", load: () => import("./views/catalog") },
  { pattern: "/playground", title: "Playground", load: () => import("./views/playground") },
  { pattern: "/operate", title: "Operate", load: () => import("./views/operate") },
  { pattern: "/settings", title: "Settings", load: () => import("./views/settings") },
];

/** On phones the side bar covers the page while it is open. */
const isSidebarOpen = signal(false);

export function App() {
  switch (authStatus.value) {
    case "checking":
      return <Loading label="Connecting…" />;
    case "signed-in":
      return <Shell />;
    default:
      return <SignIn />;
  }
}

/** Do what takes long the first time while the page waits for the gateway or the user. */
function warmUp(): void {
  whenIdle(() => void formatClock(0));
  whenIdle(() => void renderMarkdown("**a** [b](https://c/)\n\n- `d`\n\n|e|\n|-|\n|f|"));
  whenIdle(() => void highlight("const a = `${1}`;", "typescript"));
}

function Shell() {
  const { path } = location.value;
  useEffect(warmUp, []);
  useEffect(() => {
    isSidebarOpen.value = false;
  }, [path]);
  return (
    <div class={`shell${isSidebarOpen.value ? " sidebar-open" : ""}`}>
      <a class="skip-link" href="#main">
        Skip to the content
      </a>
      <Sidebar isOpen={isSidebarOpen} />
      <div class="content">
        <ConnectionBanner />
        <main id="main" tabIndex={-1}>
          <CurrentView />
        </main>
      </div>
      <ApprovalTray />
      <Palette />
      <Notices />
    </div>
  );
}

interface LoadedView {
  route: Route;
  view: View | undefined;
  error: unknown;
}

function CurrentView() {
  const { path, query } = location.value;
  const loaded = useSignal<LoadedView | undefined>(undefined);
  const match = findRoute(path);
  const route = match?.route;
  useEffect(() => {
    if (route === undefined || (loaded.value?.route === route && loaded.value.view !== undefined)) return;
    document.title = `${route.title} · Nacre`;
    loaded.value = undefined;
    route.load().then(
      (module) => (loaded.value = { route, view: module.default, error: undefined }),
      (error: unknown) => (loaded.value = { route, view: undefined, error }),
    );
  }, [route]);
  if (match === undefined) return <EmptyState title="There is no such page" />;
  // The chat is part of the first view: nothing to wait for.
  const View = match.route.load === chat ? Chat : loaded.value?.route === match.route ? loaded.value.view : undefined;
  if (View !== undefined) {
    return (
      <Boundary place={path}>
        <View params={match.params} query={query} />
      </Boundary>
    );
  }
  if (loaded.value?.error !== undefined) return <MissingPart />;
  return <Loading />;
}

/** A browser remembers that a file could not be loaded, so only a new page can try again. */
function MissingPart() {
  return (
    <div class="state error" role="alert">
      <h2>This view could not be loaded</h2>
      <p>The gateway does not respond, or was updated since you opened this page.</p>
      <Button onClick={() => window.location.reload()}>Reload the page</Button>
    </div>
  );
}

function findRoute(path: string): { route: Route; params: Record<string, string> } | undefined {
  for (const route of ROUTES) {
    const params = matchPath(route.pattern, path);
    if (params !== undefined) return { route, params };
  }
  return undefined;
}
