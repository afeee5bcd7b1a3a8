// returns: 5
namespace Long { export namespace Name { export const v = 5; } }
const Short = Long.Name;
return Short.v;
