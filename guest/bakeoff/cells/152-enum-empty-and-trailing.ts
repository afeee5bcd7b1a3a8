// returns: [0,0,6]
enum Empty {}
enum One { X, }
enum Two { A, /* b */ B = 5, C /* c */, }
return [Object.keys(Empty).length, One.X, Two.C];
