// returns: 12
const xs = [1, 2, 3].map((x) => x * 2);
return xs.reduce((a, b) => a + b, 0);
