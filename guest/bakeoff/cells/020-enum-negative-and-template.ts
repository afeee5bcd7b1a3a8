// returns: [-1,0,1,1000,"Minus"]
enum N { Minus = -1, Zero, One, Big = 1e3, Str = `t-${1}x` as any }
return [N.Minus, N.Zero, N.One, N.Big, N[-1]];
