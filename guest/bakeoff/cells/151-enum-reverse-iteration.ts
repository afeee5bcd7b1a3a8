// returns: {"names":["Mon","Tue","Wed"],"values":[1,2,3]}
enum Day { Mon = 1, Tue, Wed }
const names = Object.keys(Day).filter((k) => isNaN(Number(k)));
const values = Object.values(Day).filter((v): v is Day => typeof v === "number");
return { names, values };
