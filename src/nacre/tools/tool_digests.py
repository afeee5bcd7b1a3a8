"""A fingerprint of what each tool says, taken once: tools outlive the runs that catalog them."""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING, Final

from nacre.json_types import encode_json

if TYPE_CHECKING:
    from nacre.tools.definition import Tool

# By identity, since a tool holds dicts and has no hash; an entry goes when its tool does.
_DIGESTS: Final[dict[int, tuple[weakref.ref[Tool], bytes]]] = {}


def tool_digest(tool: Tool) -> bytes:
    """Equal for tools whose names, texts and parameters are written alike."""
    key = id(tool)
    known = _DIGESTS.get(key)
    if known is not None and known[0]() is tool:
        return known[1]
    told = [tool.id, tool.label, tool.description, tool.parameters]
    digest = hashlib.sha256(encode_json(told)).digest()
    _DIGESTS[key] = (weakref.ref(tool, lambda _: _DIGESTS.pop(key, None)), digest)
    return digest
