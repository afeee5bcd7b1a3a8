/** URL inside the VM against Node's parser, and against the standard where this Node is older than it. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { assertSameAsNode, startVm } from "./quickjs.mjs";

const describeUrl = (input) => {
  const url = Array.isArray(input) ? new URL(...input) : new URL(input);
  const { href, origin, protocol, username, password, host, hostname, port, pathname, search, hash } = url;
  const pairs = [...url.searchParams];
  return { href, origin, protocol, username, password, host, hostname, port, pathname, search, hash, pairs };
};

test("absolute URLs of special schemes are parsed as in Node", () =>
  assertSameAsNode(describeUrl, [
    "https://user:pa%20ss@example.com:8080/a/b;c=1?x=1&y=%20z#frag",
    "HTTPS://EXAMPLE.com:443/../a/./b/%2e%2E/c",
    "http:\\\\example.com\\a\\b",
    "http:example.com",
    "http://a@b@c:80/",
    "ws://h:80/", "wss://h:443/", "ftp://h:21/x;type=a", "ftp://h:22/",
    "  http://example.com/\t\n ",
    "http://ex\nample.com/a\tb",
    "file:///C|/a/../..", "file://localhost/x", "file:c:\\foo\\bar", "file://host/share",
  ]));

test("URLs of other schemes are parsed as in Node", () =>
  assertSameAsNode(describeUrl, [
    "mailto:a@b.c?subject=x y", "data:text/plain;base64,aGk=#f", "javascript:alert(1)", "about:blank",
    "foo://Host/p/../q", "foo:/a", "foo:", "foo:///x", "urn:isbn:123", "blob:https://h:443/id", "blob:x",
    "git+ssh://u@h:22/r",
  ]));

test("hosts of every kind are parsed as in Node", () =>
  assertSameAsNode(describeUrl, [
    "http://127.1/", "http://0x7f.1/", "http://0300.0250.1/", "http://4294967295/", "http://1.2.3.08/",
    "http://[::1]/", "http://[2001:DB8:0:0:1:0:0:1]:81/", "http://[::ffff:1.2.3.4]/", "http://[1:2:3:4:5:6:7:8]/",
    "http://%65xample.com/", "http://a_b.c-/", "http://a..b/", "http://h./", "foo://h%20x/", "foo://[::1]/",
  ]));

test("international domain names become the same punycode as in Node", () =>
  assertSameAsNode(describeUrl, [
    "http://münchen.de/ä", "http://faß.de", "http://ＥＸＡＭＰＬＥ.com", "http://日本語。ＪＰ", "http://☃.net/", "http://💩.la",
    "http://مثال.إختبار", "http://EXAMPLE.ΣΑΣ", "http://xn--mnchen-3ya.de", "http://x\u00ADy.z", "http://%F0%9F%92%A9.la",
    "http://ba\u0308r.de",
  ]));

test("what is no URL throws a TypeError, as in Node", () =>
  assertSameAsNode(describeUrl, [
    "", "x", "//h", "http://", "http://?", "http://h:99999/", "http://h:8a/", "http://ho st/", "http://a<b/",
    "http://256.256.256.256/", "http://1.2.3.4.5/", "http://[::1", "http://[1:2:3:4:5:6:7:8:9]/", "http://[::1%eth0]/",
    "http://%00/", "http://%zz/", "http://%E4/", "http://\u00AD/", "http://a\u200Db.c/",
    "http://א1a.com/", "1:x", "http://a^b/", ["x", "mailto:y"], ["x", "nonsense"],
  ]));

test("references are resolved against a base as in Node", () => {
  const bases = ["http://h/a/b?q#f", "https://u:p@h:1/", "file:///C:/x/y", "foo://h/a/b", "data:text/plain,x"];
  const references = [
    "", "x", "/x", "//y/z", "?q2", "#f2", "..", "../c/../d", "./", "http:x", "https:x", "file:x", "C|/z", "\\\\s\\t",
    "%2e%2e/k", "..//a", "x:y", ":", "  y  ", "?", "#",
  ];
  return assertSameAsNode(
    describeUrl,
    bases.flatMap((base) => references.map((reference) => [reference, base])),
  );
});

test("each part has its own percent-encoding, as in Node", () => {
  const printable = " !\"#$%&'()*+,-./:;<=>?@[\\]_`{|}~\x00\x1f\x7f\u0080é\u{1F600}\ud800";
  return assertSameAsNode(
    ({ part, character, scheme }) => {
      const url = new URL(`${scheme}://u:p@h/p?q#f`);
      url[part] = `a${character}b`;
      return url.href;
    },
    ["username", "password", "pathname", "search", "hash"].flatMap((part) =>
      [...printable].flatMap((character) => ["http", "foo"].map((scheme) => ({ part, character, scheme }))),
    ),
  );
});

test("setters keep, change or ignore as in Node", () =>
  assertSameAsNode(
    ([href, part, value]) => {
      const url = new URL(href);
      url[part] = value;
      return url.href;
    },
    [
      ["http://h/p", "protocol", "https"], ["http://h/p", "protocol", "foo"], ["foo://h", "protocol", "http"],
      ["http://h:8/p", "protocol", "ftp:x"], ["http://h/", "host", "x:81"], ["http://h:1/", "host", "x"],
      ["http://h/", "hostname", "x:81"], ["http://h/", "hostname", ""], ["foo://h/", "hostname", ""],
      ["http://h/", "hostname", "münchen.de"], ["http://h/", "port", "8080abc"], ["http://h:1/", "port", ""],
      ["http://h/", "port", "65536"], ["http://h/", "port", "80"], ["file:///x", "port", "1"],
      ["http://h/a", "pathname", "b/../c"], ["data:x", "pathname", "y"], ["http://h/?a", "search", ""],
      ["http://h/", "search", "?x=1"], ["http://h/#a", "hash", ""], ["mailto:x", "username", "u"],
      ["http://h/", "href", "http://other/x"], ["http://h/", "href", "nonsense"],
    ],
  ));

test("searchParams and search stay one thing, as in Node", () =>
  assertSameAsNode(() => {
    const url = new URL("http://h/?a=1&b=2&a=3#f");
    const { searchParams } = url;
    const seen = [];
    searchParams.append("c d", "é&=+");
    seen.push(url.href);
    searchParams.delete("a");
    seen.push(url.href);
    url.search = "?x=1&x=2";
    seen.push([...searchParams], searchParams === url.searchParams);
    searchParams.set("x", "9");
    searchParams.sort();
    seen.push(url.search);
    searchParams.delete("x");
    seen.push(url.href);
    url.href = "http://h/?z=0";
    seen.push([...searchParams], JSON.stringify({ url }), String(url), Object.prototype.toString.call(url));
    return seen;
  }));

test("URL.canParse and URL.parse answer instead of throwing", async () => {
  const vm = await startVm();
  const answers = vm.run(() => [
    URL.canParse("http://h"), URL.canParse("x"), URL.canParse("x", "http://h"),
    URL.parse("x"), URL.parse("x", "http://h/a/b").href,
  ]);
  assert.deepEqual(answers, [true, false, true, null, "http://h/a/x"]);
});

test("the newest standard holds where this Node's parser is older", async () => {
  const vm = await startVm();
  const hrefs = vm.run(
    (inputs) => inputs.map((input) => new URL(input).href),
    ["http://h/a^b", "data:a ?x", "foo://h/..", "file:///h:80/..", "http://XN--A/"],
  );
  assert.deepEqual(hrefs, ["http://h/a%5Eb", "data:a%20?x", "foo://h/", "file:///", "http://xn--a/"]);
});

test("URL cannot be called without new, nor its members on foreign objects", () =>
  assertSameAsNode(
    (name) =>
      ({
        call: () => URL("http://h"),
        getter: () => Object.getOwnPropertyDescriptor(URL.prototype, "href").get.call({}),
        noArgument: () => new URL(),
      })[name](),
    ["call", "getter", "noArgument"],
  ));
