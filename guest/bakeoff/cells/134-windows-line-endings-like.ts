// returns: {"lines":["a","b","c"],"joined":"a\tb\tc"}
const lines: string[] = "a\r\nb\r\nc".split(/\r\n/);
const joined = lines.join("\t") as string;
return { lines, joined };
