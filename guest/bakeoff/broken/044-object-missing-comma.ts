// error: 4:3
const cfg = {
  host: "x"
  port: 8080 as number,
};
return cfg;
