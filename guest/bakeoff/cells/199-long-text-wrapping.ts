// returns: [["the quick brown","fox jumps over","the lazy dog"],["  incompr-","  ehensib-","  ilities","  are long"]]
interface WrapOptions { width: number; indent?: string; hyphenate?: boolean }
const defaults: Required<Omit<WrapOptions, "width">> = { indent: "", hyphenate: false };

function wrap(text: string, options: WrapOptions): string[] {
  const { width, indent, hyphenate } = { ...defaults, ...options };
  const lines: string[] = [];
  let line = indent;
  const flush = (): void => {
    if (line.trim() !== "") lines.push(line.trimEnd());
    line = indent;
  };
  for (let word of text.split(/\s+/).filter(Boolean)) {
    while (hyphenate && word.length > width - indent.length) {
      flush();
      const take = width - indent.length - 1;
      lines.push(indent + word.slice(0, take) + "-");
      word = word.slice(take);
    }
    if (line.length + word.length > width && line.trim() !== "") flush();
    line += word + " ";
  }
  flush();
  return lines;
}
return [
  wrap("the quick brown fox jumps over the lazy dog", { width: 16 }),
  wrap("incomprehensibilities are long", { width: 10, indent: "  ", hyphenate: true }),
];
