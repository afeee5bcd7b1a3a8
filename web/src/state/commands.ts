/** The slash commands of the gateway. */
import { signal } from "@preact/signals";

import { request } from "../api/client";
import type { Command } from "../api/types";

export const commands = signal<readonly Command[]>([]);
let isLoaded = false;

export async function loadCommands(): Promise<void> {
  if (isLoaded) return;
  isLoaded = true;
  try {
    commands.value = (await request<{ commands: Command[] }>("/api/commands")).commands;
  } catch {
    isLoaded = false; // Completion is a help; the next slash tries again.
  }
}
