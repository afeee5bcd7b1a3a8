// returns: [2,"text/plain",9]
enum Mime {
  "text/plain" = 1,
  "text/html",
  'a"b' = 9,
}
return [Mime["text/html"], Mime[1], Mime['a"b']];
