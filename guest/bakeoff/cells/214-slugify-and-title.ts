// returns: ["creme-brulee-co","Hello Big World"]
const slugify = (s: string): string => s.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
const title = (s: string): string => s.replace(/\b\w/g, (c: string) => c.toUpperCase());
return [slugify("Crème Brûlée & Co."), title("hello big world")];
