/** Ctrl+K: go to a session or a view, or do something, by typing. */
import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { rankChoices } from "../model/palette";
import { sessionTitle } from "../model/session_list";
import { navigate } from "../router";
import { sessions } from "../state/sessions";
import { theme } from "../state/theme";
import { Dialog } from "./controls";
import { Icon, type IconName } from "./icons";

interface Choice {
  label: string;
  icon: IconName;
  run: () => void;
}

const MAX_CHOICES = 10;
const isOpen = signal(false);

export function startPalette(): void {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      isOpen.value = !isOpen.value;
    }
  });
}

export function Palette() {
  return isOpen.value ? <PaletteDialog onClose={() => (isOpen.value = false)} /> : null;
}

function PaletteDialog({ onClose }: { onClose: () => void }) {
  const query = useSignal("");
  const selected = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const found = rankChoices(listChoices(), query.value).slice(0, MAX_CHOICES);
  const index = Math.min(selected.value, Math.max(0, found.length - 1));
  const choose = (choice: Choice | undefined) => {
    onClose();
    choice?.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") selected.value = Math.min(index + 1, found.length - 1);
    else if (event.key === "ArrowUp") selected.value = Math.max(index - 1, 0);
    else if (event.key === "Enter") choose(found[index]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={onClose} class="palette">
      <input
        ref={input}
        role="combobox"
        aria-label="Go to"
        aria-expanded={found.length > 0}
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `palette-${index}` : undefined}
        placeholder="Go to a session or a view"
        value={query.value}
        onInput={(event) => {
          query.value = event.currentTarget.value;
          selected.value = 0;
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="palette-list" role="listbox" aria-label="Choices">
        {found.map((choice, at) => (
          <li key={at} id={`palette-${at}`} role="option" aria-selected={at === index} onClick={() => choose(choice)}>
            <Icon name={choice.icon} />
            {choice.label}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="hint">Nothing has this name.</p>}
    </Dialog>
  );
}

function listChoices(): Choice[] {
  const views: [string, IconName, string][] = [
    ["New session", "plus", "/"],
    ["Catalog", "catalog", "/catalog"],
    ["Playground", "play", "/playground"],
    ["Operate", "pulse", "/operate"],
    ["Settings", "settings", "/settings"],
  ];
  return [
    ...views.map(([label, icon, path]) => ({ label, icon, run: () => navigate(path) })),
    { label: "Theme: light", icon: "sun", run: () => (theme.value = "light") },
    { label: "Theme: dark", icon: "moon", run: () => (theme.value = "dark") },
    { label: "Theme: system", icon: "system", run: () => (theme.value = "system") },
    ...sessions.value.map((session) => ({
      label: sessionTitle(session),
      icon: "chat" as const,
      run: () => navigate(`/sessions/${session.id}`),
    })),
  ];
}
