// error: 2:19
const r: RegExp = /abc;
return r.test("abc");
