// returns: [{"k":1,"z":2},"t-2","yes",[1,2,3,4],6,5,true,"string"]
const v = async <T,>(x: T): Promise<T> => x;
const o = { [await v("k")]: await v(1), ...(await v({ z: 2 })) };
const s = `${await v("t")}-${(await v([1, 2]))[1]! as number}`;
const c = (await v(true)) ? await v("yes") : await v("no");
const arr = [await v(1), ...(await v([2, 3]))];
if (await v(true)) for (const x of await v([4])) arr.push(x);
const fn = async (d = 5): Promise<number> => (await v(d)) + 1;
const n = +(await v("7")) + -(await v(2) as number);
return [o, s, c, arr, await fn(), n, !(await v(false)), typeof (await v(""))];
