// returns: [{"userId":2,"total":30,"name":"Bob"},{"userId":2,"total":12,"name":"Bob"}]
interface User { id: number; name: string }
interface Order { userId: number; total: number }
const users: User[] = [{ id: 1, name: "Ann" }, { id: 2, name: "Bob" }, { id: 3, name: "Cat" }];
const orders: Order[] = [{ userId: 2, total: 30 }, { userId: 1, total: 5 }, { userId: 2, total: 12 }];
const byId = new Map<number, User>(users.map((u) => [u.id, u] as const));
const result = orders.map((o) => ({ ...o, name: byId.get(o.userId)!.name }));
return result.filter((r): boolean => r.total > 10);
