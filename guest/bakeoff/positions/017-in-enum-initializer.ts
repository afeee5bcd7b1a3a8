// throws-at: 3
const boom = (): number => {
  throw new Error("init");
};
enum E {
  A = 1,
  B = boom(),
}
return E.B;
