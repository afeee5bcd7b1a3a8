/** Converts domain names to ASCII for whatwg-url. tr46 is loaded by the first name that needs its table. */

const plainAscii = /^[\0-\x7f]*$/;

export function toASCII(domainName, options) {
  // As in the URL standard since 2026 (whatwg/url#914), also for invalid "xn--" labels; whatwg-url 16 is older.
  const beStrict = options.verifyDNSLength;
  if (!beStrict && plainAscii.test(domainName)) return domainName.toLowerCase();
  return require("tr46").toASCII(domainName, options);
}
