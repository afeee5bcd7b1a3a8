// returns: [1,"a"]
const make = () => {
  return <
    T,
    U = T,
  >(x: T, y?: U): [T, U?] => [x, y];
};
return make()<number, string>(1, "a");
