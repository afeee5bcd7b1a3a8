/** TextDecoder of @exodus/bytes, without the East Asian legacy encodings, whose tables would double src/web. */
import { TextDecoder as CompleteTextDecoder } from "@exodus/bytes/encoding-lite.js";

const unsupported = new Set(["big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "shift_jis"]);

export class TextDecoder extends CompleteTextDecoder {
  constructor(label, options) {
    super(label, options);
    // Without this, the library throws in decode(), with a message about an import.
    if (unsupported.has(this.encoding)) throw new RangeError(`The "${this.encoding}" encoding is not supported here`);
  }
}
