// returns: {"warmest":"Cairo","spread":27}
type Weather = { city: string; tempC: number };
const tools = {
  async call(name: string, args: { city: string }): Promise<unknown> {
    const table: { [city: string]: number } = { Oslo: 4, Rome: 19, Cairo: 31 };
    return { city: args.city, tempC: table[args.city] };
  },
};
const cities = ["Oslo", "Rome", "Cairo"] as const;
const answers = (await Promise.all(cities.map((city) => tools.call("weather", { city })))) as Weather[];
const warmest = answers.reduce((best, w) => (w.tempC > best.tempC ? w : best));
return { warmest: warmest.city, spread: Math.max(...answers.map((w) => w.tempC)) - Math.min(...answers.map((w) => w.tempC)) };
