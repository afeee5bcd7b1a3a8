/** TextDecoder by @exodus/bytes, without the East Asian legacy encodings: their tables would double src/web. */
import { TextDecoder as CompleteTextDecoder } from "@exodus/bytes/encoding-lite.js";

const unsupported = new Set(["big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "shift_jis"]);

export class TextDecoder extends CompleteTextDecoder {
  constructor(label, options) {
    super(label, options);
    // The library would complain only in decode(), about an import that no cell can make.
    if (unsupported.has(this.encoding)) throw new RangeError(`The "${this.encoding}" encoding is not supported here`);
  }
}
