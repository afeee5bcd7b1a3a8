/** Code, highlighted, with a button that copies it. */
import { memo } from "preact/compat";
import { useMemo } from "preact/hooks";

import { formatNumber } from "../model/format";
import { Button, CopyButton } from "./controls";
import { highlight } from "./highlight";
import { useIdle } from "./gradual";
import { trustHtml } from "./trusted_html";

interface CodeProps {
  code: string;
  language: string;
  /** The line and column of an error, from 1. */
  errorLine?: number;
  errorColumn?: number;
  hasLineNumbers?: boolean;
}

/** Code without a frame. */
export const Code = memo(function Code({ code, language, errorLine = 0, errorColumn = 0, hasLineNumbers = false }: CodeProps) {
  // Colours take the most time, and the reader can do without them for a moment.
  const colours = useIdle() ? language : "";
  const html = useMemo(() => trustHtml(highlight(code, colours)), [code, colours]);
  const lines = useMemo(() => code.split("\n").length, [code]);
  const hasError = errorLine > 0 && errorLine <= lines;
  return (
    <div class="code" tabIndex={0} role="group" aria-label={`${language || "text"} code`}>
      {hasLineNumbers && (
        <pre class="line-numbers" aria-hidden="true">
          {hasError ? (
            <>
              {countLines(1, errorLine - 1)}
              <span class="error">{errorLine}</span>
              {`\n${countLines(errorLine + 1, lines)}`}
            </>
          ) : (
            countLines(1, lines)
          )}
        </pre>
      )}
      <div class="code-text">
        {hasError && (
          <div class="error-line" style={{ "--line": errorLine - 1, "--column": Math.max(0, errorColumn - 1) }}>
            {errorColumn > 0 && <span class="error-column" />}
          </div>
        )}
        <pre>
          <code dangerouslySetInnerHTML={{ __html: html as unknown as string }} />
        </pre>
      </div>
    </div>
  );
});

/** Return these line numbers, one in each line. */
function countLines(first: number, last: number): string {
  let text = "";
  for (let line = first; line <= last; line += 1) text += `${line}\n`;
  return text;
}

/** Characters of a long text in the page at once. */
export const PART_CHARACTERS = 16_000;

/** Which part of a long text is shown, and buttons for the others. */
export function PartFooter({ offset, length, total, onGo }: { offset: number; length: number; total: number; onGo: (offset: number) => void }) {
  const end = offset + length;
  return (
    <footer>
      <span class="hint">
        Characters {formatNumber(offset + 1)} to {formatNumber(end)} of {formatNumber(total)}
      </span>
      <Button variant="quiet" disabled={offset === 0} onClick={() => onGo(Math.max(0, offset - PART_CHARACTERS))}>
        Back
      </Button>
      <Button variant="quiet" disabled={end >= total} onClick={() => onGo(end)}>
        Next
      </Button>
    </footer>
  );
}

/** A code block of a message. */
export function CodeBlock({ code, language }: { code: string; language: string }) {
  return (
    <figure class="code-block">
      <figcaption>
        <span>{language || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </figcaption>
      <Code code={code} language={language} />
    </figure>
  );
}
