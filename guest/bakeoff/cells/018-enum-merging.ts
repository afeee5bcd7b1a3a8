// returns: [1,2,10,"Extreme"]
enum Level { Low = 1, High }
enum Level { Extreme = 10 }
return [Level.Low, Level.High, Level.Extreme, Level[10]];
