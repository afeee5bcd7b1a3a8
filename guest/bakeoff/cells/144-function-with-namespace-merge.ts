// returns: "Hi Al"
function greet(name: string): string { return `${greet.prefix} ${name}`; }
namespace greet { export let prefix: string = "Hello"; }
greet.prefix = "Hi";
return greet("Al");
