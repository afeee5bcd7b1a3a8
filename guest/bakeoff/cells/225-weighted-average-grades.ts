// returns: 3.222
interface Grade { course: string; credits: number; mark: "A" | "B" | "C" | "F" }
const points: Record<Grade["mark"], number> = { A: 4, B: 3, C: 2, F: 0 };
const grades: Grade[] = [{ course: "math", credits: 4, mark: "A" }, { course: "art", credits: 2, mark: "C" }, { course: "bio", credits: 3, mark: "B" }];
const { sum, credits } = grades.reduce(
  (acc: { sum: number; credits: number }, g): { sum: number; credits: number } => ({ sum: acc.sum + points[g.mark] * g.credits, credits: acc.credits + g.credits }),
  { sum: 0, credits: 0 },
);
return Number((sum / credits).toFixed(3));
