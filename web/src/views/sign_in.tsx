/** The page of somebody who is not signed in. */
import { useSignal } from "@preact/signals";

import { describeError } from "../api/client";
import { authStatus, checkSession, signIn, signInProblem } from "../state/auth";
import { Button } from "../ui/controls";
import iconUrl from "../icon.svg";

export function SignIn() {
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const secret = String(new FormData(form).get("token") ?? "").trim();
    if (secret === "") {
      problem.value = "Enter the token, or the link that the gateway printed.";
      return;
    }
    isBusy.value = true;
    problem.value = "";
    signInProblem.value = "";
    try {
      await signIn(secret);
    } catch (error) {
      problem.value = describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  const shown = problem.value || signInProblem.value;
  return (
    <main class="sign-in">
      <form class="sign-in-card" onSubmit={(event) => void submit(event)}>
        <img src={iconUrl} alt="" width="40" height="40" />
        <h1>Sign in to Nacre</h1>
        <p>
          Open the link that <code>nacre gateway</code> printed, get a new one with <code>nacre link</code>, or enter the token of the gateway.
        </p>
        <label for="token">Token or link</label>
        <input id="token" name="token" type="password" autocomplete="current-password" autofocus spellcheck={false} aria-describedby="sign-in-problem" />
        <p id="sign-in-problem" class="problem" role="alert">
          {shown}
        </p>
        <Button type="submit" variant="primary" disabled={isBusy.value}>
          {isBusy.value ? "Signing in…" : "Sign in"}
        </Button>
        {authStatus.value === "unreachable" && <Button onClick={() => void checkSession()}>Try again</Button>}
      </form>
    </main>
  );
}
