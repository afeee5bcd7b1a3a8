// returns: [["theme","size","nested"],12,false]
const settings = { theme: "dark", size: 12, nested: { on: true } };
type Settings = typeof settings;
type Keys = keyof Settings;
type NestedOn = Settings["nested"]["on"];
const keys: Keys[] = Object.keys(settings) as Array<keyof typeof settings>;
function read<K extends keyof typeof settings>(k: K): (typeof settings)[K] { return settings[k]; }
let t: typeof settings.nested.on = false;
return [keys, read("size"), t];
