/** Requests to the gateway's JSON API. The cookie of the sign-in goes with each of them. */
import { signal } from "@preact/signals";

/** Whether the gateway refused the last request because nobody is signed in. */
export const isSignedOut = signal(false);

/** An answer of the gateway that is an error, or a request that did not arrive (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly path: string = "",
  ) {
    super(message);
  }

  /** The request may or may not have reached the gateway. */
  get isUncertain(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }
}

export interface RequestOptions {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, instead of `body`. */
  raw?: Blob;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** Send a request and return its JSON answer (undefined for an empty one). Throws `ApiError`. */
export async function request<T = unknown>(path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(path, options);
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** Send a request and return the response if it is a success. Throws `ApiError`. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  const init: RequestInit = { method: options.method ?? "GET", headers, credentials: "same-origin", cache: "no-store" };
  if (options.raw !== undefined) {
    init.body = options.raw;
  } else if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  if (options.signal !== undefined) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(withQuery(path, options.query), init);
  } catch (error) {
    if (options.signal?.aborted === true) throw error;
    throw new ApiError(0, "unreachable", "The gateway does not respond. Check that it runs.");
  }
  if (!response.ok) throw await readError(response);
  return response;
}

export function withQuery(path: string, query: RequestOptions["query"]): string {
  const pairs = Object.entries(query ?? {}).filter((pair): pair is [string, string | number | boolean] => pair[1] !== undefined);
  if (pairs.length === 0) return path;
  return `${path}?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&")}`;
}

/** Return an error as a message for people. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function readError(response: Response): Promise<ApiError> {
  let code = "failed";
  let message = `The gateway answered ${response.status} ${response.statusText}.`;
  let path = "";
  try {
    const body = (await response.json()) as { error?: { code?: string; message?: string; path?: string } };
    code = body.error?.code ?? code;
    message = body.error?.message ?? message;
    path = body.error?.path ?? "";
  } catch {
    // Not an answer of the gateway itself: a proxy, for example.
  }
  if (response.status === 401 && !response.url.endsWith("/api/web/sign-in")) isSignedOut.value = true;
  return new ApiError(response.status, code, message, path);
}
