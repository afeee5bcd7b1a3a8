// returns: ["RangeError","plain","no binding","code 5","finally"]
const out: string[] = [];
try { throw new RangeError("r"); } catch (e: unknown) { if (e instanceof RangeError) out.push(e.name); }
try { throw "plain"; } catch (e: any) { out.push(e as string); }
try { null!.foo; } catch { out.push("no binding"); }
try { throw { code: 5 }; } catch ({ code }: any) { out.push(`code ${code}`); } finally { out.push("finally"); }
return out;
