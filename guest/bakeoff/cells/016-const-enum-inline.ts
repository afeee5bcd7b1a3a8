// returns: 14
const enum Dir { Up = 1, Down, Left = 10, Right }
const moves: Dir[] = [Dir.Up, Dir.Right, Dir.Down];
let score = 0;
for (const m of moves) {
  switch (m) {
    case Dir.Up: score += 1; break;
    case Dir.Down: score += 2; break;
    case Dir.Left:
    case Dir.Right: score += m; break;
  }
}
return score;
