/** Small values that outlive the page. Nothing secret: any script of this origin can read them. */
const PREFIX = "nacre.";

export function readStored(name: string): string {
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return "";
  }
}

export function writeStored(name: string, value: string): void {
  try {
    if (value === "") localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // Storage is full or forbidden: the value lives as long as the page.
  }
}
