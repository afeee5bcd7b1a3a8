/** What a run waits for besides approvals: results of client tools, and questions of the agent. */
import { useSignal } from "@preact/signals";

import { describeError } from "../api/client";
import type { Json } from "../api/types";
import { formatTimeLeft, showControls } from "../model/format";
import { readQuestions } from "../model/questions";
import type { Call, ClientRequest, Question } from "../model/turn";
import { sendClientResult } from "../state/chat";
import { useServerNow } from "../state/clock";
import { sendMessage } from "../state/outbox";
import { Code } from "../ui/code";
import { Button } from "../ui/controls";
import { Markdown } from "../ui/markdown";

export function ClientToolForm({ runId, call, request }: { runId: string; call: Call; request: ClientRequest }) {
  const text = useSignal("");
  const isError = useSignal(false);
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const send = async () => {
    isBusy.value = true;
    problem.value = "";
    try {
      await sendClientResult(runId, request.callId, text.value, isError.value);
    } catch (error) {
      problem.value = describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <section class="approval" role="group" aria-label={`Result of ${call.toolName}`}>
      <header>
        <strong>{showControls(call.toolName)}</strong>
        <span>is a tool of the client: send its result</span>
      </header>
      <Code code={formatArguments(request.arguments)} language="json" />
      <label>
        <span class="hint">Result</span>
        <textarea class="mono" rows={3} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      {problem.value !== "" && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      <div class="approval-actions">
        <Button variant="primary" disabled={isBusy.value} onClick={() => void send()}>
          Send the result
        </Button>
        <label class="checkbox">
          <input type="checkbox" checked={isError.value} onChange={(event) => (isError.value = event.currentTarget.checked)} />
          It is an error
        </label>
      </div>
    </section>
  );
}

export function QuestionForm({ sessionId, question }: { sessionId: string; question: Question }) {
  const now = useServerNow(question.how === "");
  const own = useSignal("");
  const answers = useSignal<Record<string, string>>({});
  if (question.how !== "") {
    return (
      <div class="question">
        <Markdown text={question.text} />
        <p class="hint">{{ answered: "Answered", expired: "Expired without an answer", withdrawn: "Withdrawn" }[question.how] ?? question.how}</p>
      </div>
    );
  }
  const questions = readQuestions(question.questions);
  const send = (text: string) => {
    if (text.trim() !== "") void sendMessage({ sessionId, text, attachments: [], mode: undefined, liveRunId: "" });
  };
  const choose = (id: string, label: string) => {
    if (questions.length === 1) return send(label);
    answers.value = { ...answers.value, [id]: label };
  };
  const isComplete = questions.every(({ id }) => answers.value[id] !== undefined);
  return (
    <section class="approval question" role="group" aria-label="Question of the agent">
      <header>
        <strong>The agent asks</strong>
        <time class="hint" title="Time left">
          {formatTimeLeft(question.expiresAt - now)}
        </time>
      </header>
      {questions.length === 0 && <Markdown text={question.text} />}
      {questions.map(({ id, text, options }) => (
        <fieldset key={id}>
          <legend>{text}</legend>
          {options.map((option) => (
            <Button key={option.label} aria-pressed={answers.value[id] === option.label} title={option.description} onClick={() => choose(id, option.label)}>
              {option.label}
            </Button>
          ))}
        </fieldset>
      ))}
      {questions.length > 1 && (
        <Button
          variant="primary"
          disabled={!isComplete}
          onClick={() => send(questions.map(({ id }) => `${id}: ${answers.value[id] ?? ""}`).join("\n"))}
        >
          Send the answers
        </Button>
      )}
      <form
        class="inline-form"
        onSubmit={(event) => {
          event.preventDefault();
          send(own.value);
        }}
      >
        <input aria-label="Your own answer" placeholder="Your own answer" value={own.value} onInput={(event) => (own.value = event.currentTarget.value)} />
        <Button type="submit">Answer</Button>
      </form>
    </section>
  );
}

function formatArguments(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
