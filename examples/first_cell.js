// A cell: the body of an async function, run in a sandbox of its own. `return` gives the value.
const orders = [
  { id: 1, customer: "Ada", total: 120.5, placed: new Date("2026-01-03") },
  { id: 2, customer: "Grace", total: 80, placed: new Date("2026-01-04") },
  { id: 3, customer: "Ada", total: 42.25, placed: new Date("2026-01-09") },
];

text(`${orders.length} orders`);
const byCustomer = new Map();
for (const { customer, total } of orders) {
  byCustomer.set(customer, (byCustomer.get(customer) ?? 0) + total);
}
json(byCustomer);

// The whole VM is suspended here, a few kilobytes of it, and resumed.
await yield_control("show the totals first");
await new Promise((resolve) => setTimeout(resolve, 20));
console.log("resumed after", crypto.randomUUID().length, "characters of a UUID");

return { best: [...byCustomer].sort((a, b) => b[1] - a[1])[0][0], last: orders.at(-1).placed };
