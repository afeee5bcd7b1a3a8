/** The colours of the page: those of the system, or the ones that the user chose. */
import { effect, signal } from "@preact/signals";

import { readStored, writeStored } from "./storage";

export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

const stored = readStored("theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

export function startTheme(): void {
  effect(() => {
    const chosen = theme.value;
    if (chosen === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = chosen;
    writeStored("theme", chosen === "system" ? "" : chosen);
  });
}
