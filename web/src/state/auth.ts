/** Who uses the page: sign-in with a one-time code or a token, sign-out. */
import { effect, signal } from "@preact/signals";

import { describeError, isSignedOut, request } from "../api/client";
import type { WebSession } from "../api/types";

export type AuthStatus = "checking" | "signed-in" | "signed-out" | "unreachable";

export const authStatus = signal<AuthStatus>("checking");
export const webSession = signal<WebSession | undefined>(undefined);
/** Why the link that opened the page did not sign in. */
export const signInProblem = signal("");

/** Whether the page may send such requests; the gateway checks it again. */
export function hasScope(scope: "read" | "run" | "approve" | "admin"): boolean {
  const scopes = webSession.value?.scopes ?? [];
  return scopes.includes(scope) || scopes.includes("admin");
}

/** Use the code in the address, if there is one, and find out whether somebody is signed in. */
export async function startAuth(): Promise<void> {
  effect(() => {
    if (isSignedOut.value && authStatus.peek() === "signed-in") authStatus.value = "signed-out";
  });
  const code = takeCode();
  if (code !== "") {
    try {
      await request("/api/web/sign-in", { method: "POST", body: { code } });
    } catch (error) {
      signInProblem.value = describeError(error);
    }
  }
  await checkSession();
}

export async function checkSession(): Promise<void> {
  try {
    const session = await request<WebSession>("/api/web/session");
    webSession.value = session;
    isSignedOut.value = false;
    authStatus.value = session.isSignedIn ? "signed-in" : "signed-out";
    if (session.isSignedIn) signInProblem.value = "";
  } catch (error) {
    signInProblem.value = describeError(error);
    authStatus.value = "unreachable";
  }
}

/** Sign in with a token, or with the one-time code of a link. Throws `ApiError`. */
export async function signIn(secret: string): Promise<void> {
  const code = /[#&]code=([^&]+)/.exec(secret)?.[1];
  const body = code === undefined ? { token: secret } : { code: decodeURIComponent(code) };
  await request("/api/web/sign-in", { method: "POST", body });
  await checkSession();
}

export async function signOut(): Promise<void> {
  await request("/api/web/sign-out", { method: "POST" });
  webSession.value = undefined;
  authStatus.value = "signed-out";
}

/** Return the code in the fragment of the address, and remove it from there. */
function takeCode(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code !== "") history.replaceState(null, "", location.pathname + location.search);
  return code;
}
