// returns: ["be","ef","ff","00"]
const buf: ArrayBuffer = new ArrayBuffer(8);
const view: DataView = new DataView(buf);
view.setUint16(0, 0xbeef, false);
view.setInt8(2, -1);
const bytes = new Uint8Array(buf as ArrayBuffer, 0, 4);
return Array.from(bytes as Iterable<number>, (b: number): string => b.toString(16).padStart(2, "0"));
