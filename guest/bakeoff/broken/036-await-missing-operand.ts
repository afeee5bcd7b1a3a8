// error: 3:17
const f = async (): Promise<number> => 1;
const a = await ;
return a;
