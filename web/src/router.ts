/** The address of the page and the view that shows it. Paths are below `/app`. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";

export interface ViewProps {
  /** The parts of the path that the pattern names, decoded. */
  params: Record<string, string>;
  query: URLSearchParams;
}
export type View = ComponentType<ViewProps>;

export interface Route {
  /** Such as `/runs/:runId`. */
  pattern: string;
  title: string;
  /** Return the view; a lazy one is a chunk of its own. */
  load(): Promise<{ default: View }>;
}

export interface Location {
  path: string;
  query: URLSearchParams;
}

const BASE = "/app";

export const location = signal<Location>(readLocation());

/** Go to a path below `/app`, such as `/sessions/session_1`. */
export function navigate(path: string, options: { replace?: boolean } = {}): void {
  if (options.replace === true) history.replaceState(null, "", BASE + path);
  else history.pushState(null, "", BASE + path);
  location.value = readLocation();
}

/** Return the address of a path, for `href`. */
export function href(path: string): string {
  return BASE + path;
}

/** Return the parameters if the path has the pattern. */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const expected = pattern.split("/");
  const parts = path.replace(/(.)\/+$/, "$1").split("/");
  if (expected.length !== parts.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, name] of expected.entries()) {
    const part = parts[index] ?? "";
    if (!name.startsWith(":")) {
      if (name !== part) return undefined;
    } else if (part === "") {
      return undefined;
    } else {
      params[name.slice(1)] = decode(part);
    }
  }
  return params;
}

/** Follow the links and the history of the browser. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    location.value = readLocation();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download") || link.origin !== window.location.origin) return;
    if (!link.pathname.startsWith(`${BASE}/`) || link.pathname.startsWith(`${BASE}/assets/`)) return;
    event.preventDefault();
    navigate(link.pathname.slice(BASE.length) + link.search);
  });
}

function readLocation(): Location {
  const { pathname, search } = globalThis.location ?? { pathname: "/", search: "" };
  const path = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : pathname;
  return { path: path === "" ? "/" : path, query: new URLSearchParams(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
