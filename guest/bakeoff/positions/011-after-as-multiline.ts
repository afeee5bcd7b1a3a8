// throws-at: 11
const x = ({ a: 1 } as unknown as {
  a: number;
  b?: {
    c: string;
  };
});
const y = x satisfies {
  a: number;
};
return y.b!.c;
