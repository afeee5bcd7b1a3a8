// returns: ["root","-a","--a1","-b"]
interface TreeNode { name: string; children?: TreeNode[] }
const tree: TreeNode = { name: "root", children: [{ name: "a", children: [{ name: "a1" }] }, { name: "b" }] };
function* walk(node: TreeNode, depth = 0): Generator<{ name: string; depth: number }> {
  yield { name: node.name, depth };
  for (const c of node.children ?? []) yield* walk(c, depth + 1);
}
return Array.from(walk(tree), ({ name, depth }) => "-".repeat(depth) + name);
