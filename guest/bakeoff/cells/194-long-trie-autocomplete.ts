// returns: {"ca":["cart","car"],"x":[],"size":4}
class TrieNode {
  readonly children: Map<string, TrieNode> = new Map();
  weight: number | null = null;
}
class Trie implements Iterable<[string, number]> {
  #root = new TrieNode();
  insert(word: string, weight: number = 1): this {
    let node = this.#root;
    for (const ch of word) {
      let next = node.children.get(ch);
      if (!next) node.children.set(ch, (next = new TrieNode()));
      node = next;
    }
    node.weight = (node.weight ?? 0) + weight;
    return this;
  }
  private *walk(node: TrieNode, prefix: string): Generator<[string, number], void, undefined> {
    if (node.weight !== null) yield [prefix, node.weight];
    for (const [ch, child] of node.children) yield* this.walk(child, prefix + ch);
  }
  [Symbol.iterator](): Iterator<[string, number]> { return this.walk(this.#root, ""); }
  complete(prefix: string, limit?: number): string[] {
    let node: TrieNode | undefined = this.#root;
    for (const ch of prefix) {
      node = node?.children.get(ch);
      if (!node) return [];
    }
    return [...this.walk(node!, prefix)]
      .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
      .slice(0, limit ?? Infinity)
      .map(([w]) => w);
  }
}
const trie = new Trie().insert("car").insert("cart", 3).insert("care", 2).insert("dog").insert("car", 1);
return { ca: trie.complete("ca", 2), x: trie.complete("x"), size: [...trie].length };
