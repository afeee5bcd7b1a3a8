// returns: ["$1,234,567.89","€3.50"]
interface Money { readonly amount: number; readonly currency: "EUR" | "USD" }
const symbols: { [C in Money["currency"]]: string } = { EUR: "€", USD: "$" };
const fmt = ({ amount, currency }: Money): string => `${symbols[currency]}${amount.toFixed(2).replace(/\B(?=(\d{3})+(?!\d))/g, ",")}`;
const add = (a: Money, b: Money): Money => {
  if (a.currency !== b.currency) throw new Error("mixed currencies");
  return { ...a, amount: a.amount + b.amount };
};
return [fmt({ amount: 1234567.891, currency: "USD" }), fmt(add({ amount: 1, currency: "EUR" }, { amount: 2.5, currency: "EUR" }))];
