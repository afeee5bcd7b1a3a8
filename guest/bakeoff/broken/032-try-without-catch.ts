// error: 5:1
try {
  const a: number = 1;
}
return 1;
