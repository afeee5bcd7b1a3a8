/** Choices by what somebody types. */

/** Return the choices that contain all words of the query; those that begin with it come first. */
export function rankChoices<T extends { label: string }>(choices: readonly T[], query: string): T[] {
  const wanted = query.trim().toLowerCase();
  if (wanted === "") return [...choices];
  const words = wanted.split(/\s+/);
  const found = choices.filter(({ label }) => words.every((word) => label.toLowerCase().includes(word)));
  const rank = ({ label }: T) => (label.toLowerCase().startsWith(wanted) ? 0 : 1);
  return found.sort((a, b) => rank(a) - rank(b));
}
