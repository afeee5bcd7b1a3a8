// returns: ["Ok","Missing","other"]
function label(code: number): string {
  enum Code { Ok = 200, Missing = 404 }
  return Code[code] ?? "other";
}
return [label(200), label(404), label(500)];
