// error: 2:16
enum E { A = 1 B = 2 }
return E.A;
