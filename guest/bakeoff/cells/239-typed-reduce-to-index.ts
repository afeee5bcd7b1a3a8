// returns: {"bug":{"open":[1],"closed":[2]},"ui":{"open":[1],"closed":[]},"(none)":{"open":[3],"closed":[]}}
interface Issue { id: number; labels: string[]; open: boolean }
const issues: Issue[] = [{ id: 1, labels: ["bug", "ui"], open: true }, { id: 2, labels: ["bug"], open: false }, { id: 3, labels: [], open: true }];
const index = issues.reduce<Record<string, { open: number[]; closed: number[] }>>((acc, { id, labels, open }) => {
  for (const l of labels.length ? labels : ["(none)"]) {
    const slot = (acc[l] ??= { open: [], closed: [] });
    (open ? slot.open : slot.closed).push(id);
  }
  return acc;
}, Object.create(null) as Record<string, { open: number[]; closed: number[] }>);
return { ...index };
