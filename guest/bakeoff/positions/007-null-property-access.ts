// throws-at: 9
interface User {
  name?: {
    first: string;
  };
}
const users: User[] = [{}];
const names = users.map((u: User): string =>
  u.name!.first.toUpperCase());
return names;
