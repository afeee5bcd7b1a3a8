// returns: "SGVsbG8hIQ=="
const ALPHA = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" as const;
function b64(bytes: Uint8Array): string {
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const [a, b, c] = [bytes[i]!, bytes[i + 1], bytes[i + 2]] as [number, number?, number?];
    const n = (a << 16) | ((b ?? 0) << 8) | (c ?? 0);
    out += ALPHA[n >> 18]! + ALPHA[(n >> 12) & 63]! + (b === undefined ? "=" : ALPHA[(n >> 6) & 63]!) + (c === undefined ? "=" : ALPHA[n & 63]!);
  }
  return out;
}
return b64(Uint8Array.from([..."Hello!!"].map((ch) => ch.charCodeAt(0))));
