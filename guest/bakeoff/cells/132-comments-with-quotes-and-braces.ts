// returns: [{"a":"'","b":"}"},"/* not comment */ // nor this '"]
// it's { unbalanced (
const x: { /* } */ a: string; // "
  b: '}' | "{" } = { a: "'", b: "}" };
/* `template ${ */
const y = `/* not comment */ // nor this ${/* real } */ x.a as string}`;
return [x, y];
