// returns: ["a: ","b: X, Y"]
const render = ({
  title,
  items = [],
  opts: { sep = ", ", upper } = {},
}: {
  title: string;
  items?: string[];
  opts?: { sep?: string; upper?: boolean };
}): string => {
  const body = items.join(sep);
  return `${title}: ${upper ? body.toUpperCase() : body}`;
};
return [render({ title: "a" }), render({ title: "b", items: ["x", "y"], opts: { upper: true } })];
