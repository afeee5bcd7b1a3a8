// returns: [7,true]
class Single {
  private static instance?: Single;
  private constructor(public readonly seed: number) {}
  public static get(): Single {
    return (this.instance ??= new Single(7));
  }
}
return [Single.get().seed, Single.get() === Single.get()];
