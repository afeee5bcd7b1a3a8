// returns: ["Dog","Animal","woof"]
abstract class Animal { abstract sound(): string; }
class Dog extends Animal { sound() { return "woof"; } }
type AbstractCtor<T> = abstract new (...args: any[]) => T;
function nameOf(c: AbstractCtor<Animal>): string { return c.name; }
const make = (c: new () => Animal): Animal => new c();
return [nameOf(Dog), nameOf(Animal), make(Dog).sound()];
