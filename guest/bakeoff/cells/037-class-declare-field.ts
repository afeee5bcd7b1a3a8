// returns: 99
class Base {
  value: number = 1;
  constructor() { this.init(); }
  init(): void {}
}
class Child extends Base {
  declare value: number;
  override init(): void { this.value = 99; }
}
return new Child().value;
