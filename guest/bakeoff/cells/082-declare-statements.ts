// returns: ["undefined","undefined","undefined","undefined"]
declare const API_KEY: string;
declare let counter: number;
declare function external(a: string): Promise<void>;
declare class Remote { call(): string; private x; constructor(a: number); }
declare namespace Lib { const version: string; function f(): void; }
declare enum Outer { A, B }
declare const enum Inner { X = 1 }
declare global { interface Window { foo: string } }
declare module "somewhere" { const x: number; export default x; }
declare type Alias = string;
declare interface Iface { a: number }
declare abstract class Abs { abstract m(): void }
declare var one: number, two: string;
return [typeof API_KEY, typeof Remote, typeof external, typeof Outer];
