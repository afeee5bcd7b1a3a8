// returns: [["m"],["b"],false]
interface Cat { kind: "cat"; meow: string }
interface Dog { kind: "dog"; bark: string }
type Pet = Cat | Dog;
function isCat(p: Pet): p is Cat { return p.kind === "cat"; }
const isDog = (p: Pet): p is Dog => p.kind === "dog";
class Owner { pets: Pet[] = []; hasPets(): this is { pets: [Pet, ...Pet[]] } { return this.pets.length > 0; } }
const pets: Pet[] = [{ kind: "cat", meow: "m" }, { kind: "dog", bark: "b" }];
const o = new Owner();
return [pets.filter(isCat).map((c) => c.meow), pets.filter(isDog).map((d) => d.bark), o.hasPets()];
