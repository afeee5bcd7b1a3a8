/** Completion of slash commands. */
import type { Command } from "../api/types";

const MAX_COMMANDS = 8;

/** Return the commands that begin with the text, then those that contain it. */
export function findCommands(commands: readonly Command[], text: string): readonly Command[] {
  const wanted = text.toLowerCase();
  const names = commands.map((command) => ({ command, at: command.name.toLowerCase().indexOf(wanted) }));
  return names
    .filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at || a.command.name.localeCompare(b.command.name))
    .slice(0, MAX_COMMANDS)
    .map(({ command }) => command);
}
