// returns: [25,["/","/u/:id"]]
const point = [3, 4] as const;
const routes = { home: "/", user: "/u/:id" } as const;
type Route = (typeof routes)[keyof typeof routes];
const all: Route[] = Object.values(routes);
return [point[0] ** 2 + point[1] ** 2, all];
