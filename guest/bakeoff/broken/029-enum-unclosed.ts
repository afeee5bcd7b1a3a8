// error: 3:1
enum E { A, B
return E.A;
