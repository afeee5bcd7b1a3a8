// returns: [1,3,3,4,4]
const importData = (rows: string[]): number => rows.length;
const exported: string[] = ["x"];
const $import = 1, _export = 2, requirement = 3, importmap = 4;
function require_(x: number): number { return x; }
return [importData(exported), $import + _export, requirement, importmap, require_(4)];
