// returns: {"Todo":1,"Done":2,"Doing":1}
enum Status { Todo, Doing, Done }
const items: Status[] = [Status.Todo, Status.Done, Status.Done, Status.Doing];
const counts: Partial<Record<keyof typeof Status, number>> = {};
for (const s of items) {
  const name = Status[s] as keyof typeof Status;
  counts[name] = (counts[name] || 0) + 1;
}
return counts;
