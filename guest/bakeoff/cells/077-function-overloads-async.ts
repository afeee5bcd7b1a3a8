// returns: [{"id":1},{"id":2,"full":true}]
async function load(id: number): Promise<{ id: number }>;
async function load(id: number, full: true): Promise<{ id: number; full: boolean }>;
async function load(id: number, full?: boolean): Promise<unknown> {
  return full ? { id, full } : { id };
}
return [await load(1), await load(2, true)];
