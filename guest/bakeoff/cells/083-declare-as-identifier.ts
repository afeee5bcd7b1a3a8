// returns: [15,30,33,75]
let declare = 1, type = 2, namespace = 3, abstract = 4, module = 5, of = 6, as = 7, is = 8, asserts = 9;
const infer = 10, keyof = 11, readonly = 12, unique = 13, satisfies = 14, override = 15, global = 16, any = 17;
type = type;
return [declare + type + namespace + abstract + module, of + as + is + asserts, infer + keyof + readonly, unique + satisfies + override + global + any];
