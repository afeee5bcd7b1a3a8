// error: 2:29
const m: Map<string, number = new Map();
return m.size;
