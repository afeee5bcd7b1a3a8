// returns: "localhost:8080"
namespace Config { export const host = "localhost"; }
namespace Config { export const port: number = 8080; export const url = `${host}:${port}`; }
return Config.url;
