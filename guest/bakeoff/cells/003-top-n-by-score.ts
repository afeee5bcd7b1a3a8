// returns: ["Cy/blue","Ada/red","Di/blue"]
interface Player { name: string; score: number; team?: string }
const players: Array<Player> = [
  { name: "Ada", score: 91, team: "red" },
  { name: "Bo", score: 87 },
  { name: "Cy", score: 95, team: "blue" },
  { name: "Di", score: 91, team: "blue" },
];
const top = [...players]
  .sort((a: Player, b: Player) => b.score - a.score || a.name.localeCompare(b.name))
  .slice(0, 3)
  .map(({ name, team = "none" }: Player) => `${name}/${team}`);
return top;
