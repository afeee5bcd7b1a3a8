// error: 3:22
const n: number = 3;
return `value: ${n + }`;
