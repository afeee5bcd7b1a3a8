// error: 3:13 (checker)
function load(): number {
  const v = await Promise.resolve(1);
  return v;
}
return load();
