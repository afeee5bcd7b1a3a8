// error: 4:1
const a: number = 1;
return a;
}
async function other() {
  return 2;
