// returns: [1,2,5,6,"class"]
enum R { default = 1, class, "new" = 5, delete, in = "in" as any }
return [R.default, R.class, R.new, R.delete, R[2]];
