// refused: module syntax
export async function run(): Promise<number> { return 1; }
return await run();
