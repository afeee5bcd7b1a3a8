// throws-at: 12
/**
 * A doc comment
 */
type A = {
  // inside
  a: string; /* and
  across */ b: number;
};
/* c */ interface B extends A { /* d
*/ c: 1 }
throw new Error("c");
