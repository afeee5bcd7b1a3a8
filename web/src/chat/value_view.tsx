/** An input or a result. A large one is shown in parts, and never enters the page whole. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";

import { describeError, request } from "../api/client";
import type { Cut, Json, TextPart } from "../api/types";
import { formatBytes, formatValue, isCutValue, stripAnsi } from "../model/format";
import { Code, PART_CHARACTERS, PartFooter } from "../ui/code";
import { Button, CopyButton, Spinner } from "../ui/controls";

export interface CallAddress {
  runId: string;
  callId: string;
  part: "input" | "result";
}

interface Part {
  offset: number;
  text: string;
  total: number;
}

export function ValueView(props: { label: string; value: Json; cut: Cut | null; address: CallAddress | undefined }) {
  const { label, value, cut, address } = props;
  const whole = useMemo(() => stripAnsi(formatValue(value)), [value]);
  const isCut = useMemo(() => cut?.isCut === true || isCutValue(value), [value, cut]);
  const part = useSignal<Part | undefined>(undefined);
  const isBusy = useSignal(false);
  const problem = useSignal("");

  const load = async (offset: number) => {
    if (address === undefined) return;
    isBusy.value = true;
    problem.value = "";
    try {
      const path = `/api/runs/${address.runId}/calls/${encodeURIComponent(address.callId)}`;
      const stored = await request<TextPart>(path, { query: { part: address.part, offset, limit: PART_CHARACTERS } });
      const text = stripAnsi(stored.text);
      part.value = stored.total <= PART_CHARACTERS ? wholePart(text) : { offset, text, total: stored.total };
    } catch (error) {
      problem.value = describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  const shown = part.value ?? { offset: 0, text: whole.slice(0, PART_CHARACTERS), total: whole.length };
  const go = (offset: number) => {
    if (isCut) void load(offset);
    else part.value = { offset, text: whole.slice(offset, offset + PART_CHARACTERS), total: whole.length };
  };
  return (
    <section class="value" aria-label={label}>
      <header>
        <span class="value-label">{label}</span>
        {cut !== null && cut.isCut && <span class="hint">{formatBytes(cut.bytes)}</span>}
        {isBusy.value && <Spinner />}
        {isCut && part.value === undefined && address !== undefined && (
          <Button variant="quiet" onClick={() => void load(0)}>
            Load what is stored
          </Button>
        )}
        <CopyButton text={() => shown.text} label={`Copy ${label.toLowerCase()}`} />
      </header>
      <Code code={shown.text} language={typeof value === "string" ? "" : "json"} />
      {problem.value !== "" && <p class="problem">{problem.value}</p>}
      {shown.total > PART_CHARACTERS && <PartFooter offset={shown.offset} length={shown.text.length} total={shown.total} onGo={go} />}
    </section>
  );
}

/** Return a value that fits into one part, indented if it is JSON. */
function wholePart(text: string): Part {
  let shown = text;
  try {
    shown = formatValue(JSON.parse(text) as Json);
  } catch {
    // It is a text.
  }
  return { offset: 0, text: shown.slice(0, PART_CHARACTERS), total: Math.min(shown.length, PART_CHARACTERS) };
}
