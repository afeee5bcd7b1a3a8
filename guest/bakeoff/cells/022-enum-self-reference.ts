// returns: [1,2,4,5]
enum Size { S = 1, M = S * 2, L = M * 2, XL = Size.L + Size.S }
return [Size.S, Size.M, Size.L, Size.XL];
