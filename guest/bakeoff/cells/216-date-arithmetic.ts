// returns: ["2024-02-27","2024-02-28","2024-02-29","2024-03-01"]
const addDays = (d: Date, n: number): Date => new Date(d.getTime() + n * 86_400_000);
const iso = (d: Date): string => d.toISOString().split("T")[0]!;
const start: Date = new Date(Date.UTC(2024, 1, 27));
const days: string[] = Array.from({ length: 4 }, (_: unknown, i: number) => iso(addDays(start, i)));
return days;
