"""The names that a namespace may not take: JavaScript's words and what every cell has already."""

from __future__ import annotations

import re
from typing import Final

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS: Final = _split_names(
    """
    abstract any arguments as async await boolean break case catch class const continue debugger
    declare default delete do else enum eval export extends false finally for function get if
    implements import in instanceof interface let module never new null number object of package
    private protected public return set static string super switch symbol this throw true try type
    typeof undefined unknown using var void while with yield
    """
)
"""Reserved words, and those with a meaning in some place of JavaScript or TypeScript."""

_CODE_MODE: Final = _split_names("ALL_TOOLS API MCP json namespaces text tools yield_control")

_ENGINE: Final = _split_names(
    """
    AggregateError Array ArrayBuffer AsyncDisposableStack AsyncFunction AsyncGenerator
    AsyncGeneratorFunction AsyncIterator Atomics BigInt BigInt64Array BigUint64Array Boolean
    DataView Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array
    Float64Array Function Generator GeneratorFunction Infinity Int16Array Int32Array Int8Array
    InternalError Intl Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
    ReferenceError Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol SyntaxError
    Temporal TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef
    WeakSet WebAssembly decodeURI decodeURIComponent encodeURI encodeURIComponent escape globalThis
    isFinite isNaN parseFloat parseInt unescape
    """
)

_CELL: Final = _split_names(
    """
    DOMException TextDecoder TextEncoder URL URLSearchParams atob btoa clearInterval clearTimeout
    console crypto performance queueMicrotask require setInterval setTimeout structuredClone
    """
)
"""What a cell has of a browser's and of Node's; docs/cells.md describes it."""

_TAKEN: Final = _CODE_MODE | _ENGINE | _CELL
_MEMBERS: Final = _split_names("constructor hasOwnProperty prototype then toJSON toString valueOf")


def problem_with_global_name(name: object) -> str:
    """Why a namespace cannot be this global; empty when it can."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a JavaScript identifier of ASCII letters, digits, `_` and `$`"
    if name in _WORDS:
        return "is a word of the language"
    # A member named `__proto__` would change the object that holds all namespaces.
    if name in _TAKEN or name.startswith("__"):
        return "is taken: every program has a global of this name"
    if name in _MEMBERS:
        return "is taken: objects have a member of this name, and `namespaces` is one"
    return ""
