/** An approval request: what is asked, the time left, and the answers. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { describeError } from "../api/client";
import type { Json } from "../api/types";
import { formatInput, formatTimeLeft, showControls } from "../model/format";
import { answerApproval, type ApprovalAnswer, loadApprovalInput } from "../state/approvals";
import { hasScope } from "../state/auth";
import { useServerNow } from "../state/clock";
import { Code } from "../ui/code";
import { Button } from "../ui/controls";
import { ValueView } from "./value_view";

/** A longer input is shown in parts. */
const MAX_CODE_CHARACTERS = 30_000;

interface ApprovalProps {
  approvalId: string;
  toolName: string;
  toolId: string;
  reason: string;
  /** Without secrets and the ends of long texts, until the whole input is loaded. */
  input: Json;
  expiresAt: number;
}

export function ApprovalCard({ approvalId, toolName, toolId, reason, input, expiresAt }: ApprovalProps) {
  const mode = useSignal<"choose" | "edit" | "deny">("choose");
  const isBusy = useSignal(false);
  const problem = useSignal("");
  const draft = useSignal("");
  const whole = useSignal<Json | undefined>(undefined);
  const partProblem = useSignal("");
  const why = useSignal("");
  const card = useRef<HTMLElement>(null);
  const now = useServerNow(true);
  const canAnswer = hasScope("approve");
  // Nobody should allow what the record of the call leaves out.
  useEffect(() => {
    if (!canAnswer) return;
    loadApprovalInput(approvalId).then(
      (loaded) => (whole.value = loaded),
      (error: unknown) => (partProblem.value = describeError(error)),
    );
  }, [approvalId, canAnswer]);
  const shown = formatInput(whole.value ?? input);
  const isLoading = canAnswer && whole.value === undefined && partProblem.value === "";

  const send = async (answer: ApprovalAnswer) => {
    isBusy.value = true;
    problem.value = "";
    // The card disappears with its focus.
    const host = card.current?.closest<HTMLElement>("[role=treeitem], dialog");
    try {
      await answerApproval(approvalId, answer);
      host?.focus();
    } catch (error) {
      problem.value = describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  const sendEdited = () => {
    let edited: Json;
    try {
      edited = JSON.parse(draft.value) as Json;
    } catch (error) {
      problem.value = `This is not JSON: ${describeError(error)}`;
      return;
    }
    void send({ answer: "edit", input: edited });
  };
  const canAllow = canAnswer && !isBusy.value && !isLoading;
  return (
    <section ref={card} class="approval" role="group" aria-label={`Approval of ${toolName}`}>
      <header>
        <strong title={toolId}>{showControls(toolName)}</strong>
        <span>{showControls(reason)}</span>
        <time class="hint" aria-label="Time left" title="Time left">
          {formatTimeLeft(expiresAt - now)}
        </time>
      </header>
      {mode.value === "edit" ? (
        <label>
          <span class="hint">Input as JSON.{whole.value === undefined && " Secrets are not shown: write them again."}</span>
          <textarea
            class="mono"
            rows={Math.min(14, draft.value.split("\n").length + 1)}
            value={draft.value}
            spellcheck={false}
            onInput={(event) => (draft.value = event.currentTarget.value)}
          />
        </label>
      ) : (
        <InputView text={shown} />
      )}
      {whole.value === undefined && !isLoading && (
        <p class={partProblem.value === "" ? "hint" : "problem"}>Secrets and the ends of long texts are not shown. {partProblem.value}</p>
      )}
      {mode.value === "deny" && (
        <label>
          <span class="hint">Reason for the model (optional)</span>
          <input value={why.value} onInput={(event) => (why.value = event.currentTarget.value)} />
        </label>
      )}
      {problem.value !== "" && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {!canAnswer && <p class="hint">Your token does not have the scope `approve`.</p>}
      <div class="approval-actions">
        {mode.value === "choose" && (
          <>
            <Button variant="primary" disabled={!canAllow} onClick={() => void send({ answer: "allow-once" })}>
              Allow once
            </Button>
            <Button disabled={!canAllow} title="Also allow this tool with exactly this input, in this session" onClick={() => void send({ answer: "allow-always" })}>
              Always
            </Button>
            <Button
              disabled={!canAllow}
              onClick={() => {
                draft.value = shown;
                mode.value = "edit";
              }}
            >
              Edit
            </Button>
            <Button variant="danger" disabled={isBusy.value || !canAnswer} onClick={() => (mode.value = "deny")}>
              Deny
            </Button>
          </>
        )}
        {mode.value === "edit" && (
          <Button variant="primary" disabled={isBusy.value} onClick={sendEdited}>
            Allow with this input
          </Button>
        )}
        {mode.value === "deny" && (
          <Button
            variant="danger"
            disabled={isBusy.value}
            onClick={() => void send(why.value === "" ? { answer: "deny" } : { answer: "deny", reason: why.value })}
          >
            Deny the call
          </Button>
        )}
        {mode.value !== "choose" && (
          <Button variant="quiet" onClick={() => (mode.value = "choose")}>
            Back
          </Button>
        )}
      </div>
    </section>
  );
}

function InputView({ text }: { text: string }) {
  if (text.length <= MAX_CODE_CHARACTERS) return <Code code={text} language="json" />;
  return <ValueView label="Input" value={text} cut={null} address={undefined} />;
}
