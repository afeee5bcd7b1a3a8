// returns: ["RED",null,["Red","Green","Blue"]]
enum Color {
  Red = "RED",
  Green = "GREEN",
  Blue = "BLUE",
}
const parse = (s: string): Color | undefined =>
  (Object.values(Color) as string[]).includes(s) ? (s as Color) : undefined;
return [parse("RED"), parse("PINK") ?? null, Object.keys(Color)];
