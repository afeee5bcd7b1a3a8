/** Server-sent events, parsed from text that arrives in pieces. */

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Parses one stream. Feed it decoded text; it returns the events that are complete. */
export class SseParser {
  #rest = "";
  #id = "";
  #event = "";
  #data: string[] = [];

  feed(text: string): ServerEvent[] {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) {
      if (line !== "") {
        this.#readField(line);
      } else if (this.#data.length > 0) {
        events.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
        this.#data = [];
        this.#event = "";
      }
    }
    return events;
  }

  #readField(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return; // A comment: it keeps the connection alive.
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id") this.#id = value;
  }
}
