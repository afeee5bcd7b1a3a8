/** The message box. It works while a run is going on. */
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { describeError, request } from "../api/client";
import type { Command } from "../api/types";
import { findCommands } from "../model/commands";
import { formatBytes } from "../model/format";
import type { Attachment, QueueMode } from "../model/outbox";
import { type Turn } from "../model/turn";
import { hasScope } from "../state/auth";
import { stopRun, stoppingRuns } from "../state/chat";
import { commands, loadCommands } from "../state/commands";
import { notify } from "../state/notices";
import { readStored, writeStored } from "../state/storage";
import { Button, IconButton, Spinner } from "../ui/controls";

const MODES: readonly { mode: QueueMode; label: string; title: string }[] = [
  { mode: "steer", label: "Steer", title: "Add the message to the running turn" },
  { mode: "followup", label: "Follow up", title: "Start a turn of its own afterwards" },
  { mode: "collect", label: "Collect", title: "Join the messages that arrive into one turn" },
];
const MAX_HEIGHT_SHARE = 0.4;

export interface OutgoingMessage {
  text: string;
  attachments: readonly Attachment[];
  mode: QueueMode | undefined;
}

interface ComposerProps {
  /** Drafts are kept for each of them; empty for a new session. */
  sessionId: string;
  liveTurn: Turn | undefined;
  onSend: (message: OutgoingMessage) => void;
}

export function Composer({ sessionId, liveTurn, onSend }: ComposerProps) {
  const draftName = `draft.${sessionId || "new"}`;
  const text = useSignal(readStored(draftName));
  const attachments = useSignal<readonly Attachment[]>([]);
  const uploads = useSignal(0);
  const isDropping = useSignal(false);
  const mode = useSignal<QueueMode>("steer");
  const box = useRef<HTMLTextAreaElement>(null);
  const completion = useCompletion(text);

  useEffect(() => {
    // On a phone the keyboard would cover the page.
    if (matchMedia("(pointer: fine)").matches) box.current?.focus({ preventScroll: true });
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, window.innerHeight * MAX_HEIGHT_SHARE)}px`;
  }, [text.value]);

  const write = (value: string) => {
    text.value = value;
    writeStored(draftName, value);
  };
  const submit = () => {
    if ((text.value.trim() === "" && attachments.value.length === 0) || uploads.value > 0) return;
    onSend({ text: text.value, attachments: attachments.value, mode: liveTurn === undefined ? undefined : mode.value });
    write("");
    attachments.value = [];
  };
  const upload = async (files: Iterable<File>) => {
    // The browser empties the list when the event has ended.
    for (const file of [...files]) {
      uploads.value += 1;
      try {
        const type = file.type || "application/octet-stream";
        const stored = await request<Attachment>("/api/uploads", {
          method: "POST",
          raw: file,
          query: { name: file.name },
          headers: { "Content-Type": type },
        });
        attachments.value = [...attachments.value, { ...stored, name: stored.name || file.name }];
      } catch (error) {
        notify(`${file.name} was not uploaded: ${describeError(error)}`, { isError: true });
      } finally {
        uploads.value -= 1;
      }
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (completion.onKey(event, write)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      submit();
    }
  };
  const onPaste = (event: ClipboardEvent) => {
    const files = event.clipboardData?.files;
    if (files !== undefined && files.length > 0) {
      event.preventDefault();
      void upload(files);
    }
  };
  const canSend = hasScope("run");
  return (
    <form
      class={`composer${isDropping.value ? " dropping" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        isDropping.value = true;
      }}
      onDragLeave={(event) => {
        if (!(event.relatedTarget instanceof Node) || !event.currentTarget.contains(event.relatedTarget)) isDropping.value = false;
      }}
      onDrop={(event) => {
        event.preventDefault();
        isDropping.value = false;
        void upload(event.dataTransfer?.files ?? []);
      }}
    >
      {isDropping.value && <p class="drop-hint">Drop files to attach them</p>}
      {completion.list((name) => {
        write(`/${name} `);
        box.current?.focus();
      })}
      {(attachments.value.length > 0 || uploads.value > 0) && (
        <ul class="attachments">
          {attachments.value.map((attachment) => (
            <li key={attachment.mediaId}>
              {attachment.name} <span class="hint">{formatBytes(attachment.bytes)}</span>
              <IconButton
                icon="close"
                label={`Remove ${attachment.name}`}
                onClick={() => (attachments.value = attachments.value.filter((known) => known !== attachment))}
              />
            </li>
          ))}
          {uploads.value > 0 && (
            <li>
              <Spinner label="Uploading" /> Uploading…
            </li>
          )}
        </ul>
      )}
      <textarea
        ref={box}
        rows={1}
        aria-label="Message"
        placeholder={liveTurn === undefined ? "Ask something, or type / for commands" : "Send a message to the running turn"}
        value={text.value}
        disabled={!canSend}
        onInput={(event) => write(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
        {...completion.attributes}
      />
      <div class="composer-actions">
        <AttachButton onFiles={(files) => void upload(files)} />
        {liveTurn !== undefined && <ModeSwitch mode={mode} />}
        <span class="spacer" />
        {!canSend && <span class="hint">Your token can only read.</span>}
        {liveTurn !== undefined && <StopButton runId={liveTurn.runId} />}
        <Button type="submit" variant="primary" class="icon-button" icon="send" aria-label="Send" title="Send (Enter)" disabled={!canSend || uploads.value > 0} />
      </div>
    </form>
  );
}

function AttachButton({ onFiles }: { onFiles: (files: FileList) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton icon="attach" label="Attach files" onClick={() => input.current?.click()} />
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files"
        onChange={(event) => {
          if (event.currentTarget.files !== null) onFiles(event.currentTarget.files);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function ModeSwitch({ mode }: { mode: Signal<QueueMode> }) {
  return (
    <div class="segmented" role="radiogroup" aria-label="During the run">
      {MODES.map((each) => (
        <button key={each.mode} type="button" role="radio" aria-checked={mode.value === each.mode} title={each.title} onClick={() => (mode.value = each.mode)}>
          {each.label}
        </button>
      ))}
    </div>
  );
}

function StopButton({ runId }: { runId: string }) {
  const isStopping = stoppingRuns.value.has(runId);
  return (
    <Button class="stop" icon="stop" disabled={isStopping} title="Stop the run (Esc)" onClick={() => void stopRun(runId)}>
      {isStopping ? "Stopping…" : "Stop"}
    </Button>
  );
}

/** Completion of slash commands, as a list above the box. */
function useCompletion(text: Signal<string>) {
  const selected = useSignal(0);
  const dismissed = useSignal("");
  const isCommand = /^\/\S*$/.test(text.value) && dismissed.value !== text.value;
  useEffect(() => {
    if (isCommand) void loadCommands();
  }, [isCommand]);
  const found: readonly Command[] = isCommand ? findCommands(commands.value, text.value.slice(1)) : [];
  const index = Math.min(selected.value, Math.max(0, found.length - 1));
  const isOpen = found.length > 0;
  return {
    attributes: {
      "aria-controls": "commands",
      "aria-autocomplete": "list" as const,
      "aria-activedescendant": isOpen ? `command-${index}` : undefined,
    },
    /** Return whether the key belonged to the list. */
    onKey(event: KeyboardEvent, write: (text: string) => void): boolean {
      if (!isOpen) return false;
      const chosen = found[index];
      switch (event.key) {
        case "ArrowDown":
          selected.value = (index + 1) % found.length;
          return true;
        case "ArrowUp":
          selected.value = (index - 1 + found.length) % found.length;
          return true;
        case "Escape":
          dismissed.value = text.value;
          return true;
        case "Enter":
        case "Tab":
          // A command that is written out is sent.
          if (chosen === undefined || (event.key === "Enter" && text.value === `/${chosen.name}`)) return false;
          write(`/${chosen.name} `);
          return true;
        default:
          return false;
      }
    },
    list(onChoose: (name: string) => void) {
      return (
        <ul class="completion" id="commands" role="listbox" aria-label="Commands" hidden={!isOpen}>
          {found.map((command, at) => (
            <li
              key={command.name}
              id={`command-${at}`}
              role="option"
              aria-selected={at === index}
              onPointerDown={(event) => {
                event.preventDefault();
                onChoose(command.name);
              }}
            >
              <strong>/{command.name}</strong>
              <span class="hint">{command.description}</span>
            </li>
          ))}
        </ul>
      );
    },
  };
}
