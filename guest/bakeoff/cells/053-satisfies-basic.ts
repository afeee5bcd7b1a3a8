// returns: [3,"#00FF00"]
const palette = {
  red: [255, 0, 0],
  green: "#00ff00",
} satisfies Record<string, string | number[]>;
return [palette.red.length, palette.green.toUpperCase()];
