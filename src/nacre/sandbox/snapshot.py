"""A suspended VM as bytes that can be checked: sealed when taken, refused unless the seal holds.

Restoring foreign bytes is running foreign code, so the seal is a keyed hash. The key stays in the
supervisor: workers run hostile code and never see it.
"""

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from typing import Final

from nacre.errors import SnapshotError

_MAGIC: Final = b"NACRSNAP"
_VERSION: Final = 1
_HEAD = struct.Struct("<8sHI")
_SEAL_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of a VM: its memory as a difference from its image, and what the host knows."""

    image: str
    memory_bytes: int
    rejections: tuple[tuple[int, int, int], ...]
    open_requests: tuple[int, ...]
    pages: bytes


def seal(snapshot: Snapshot, *, key: bytes) -> bytes:
    """The snapshot as bytes that only this key can have made."""
    facts = {
        "image": snapshot.image,
        "memoryBytes": snapshot.memory_bytes,
        "rejections": snapshot.rejections,
        "openRequests": snapshot.open_requests,
    }
    header = json.dumps(facts, separators=(",", ":")).encode()
    body = _HEAD.pack(_MAGIC, _VERSION, len(header)) + header + snapshot.pages
    return body + _seal_of(body, key)


def unseal(data: bytes, *, key: bytes, image: str) -> Snapshot:
    """The snapshot again; raises SnapshotError before anything of it is used if a check fails."""
    if len(data) < _HEAD.size + _SEAL_BYTES or not data.startswith(_MAGIC):
        raise SnapshotError(f"this is not a snapshot, or it is cut off: {len(data)} bytes")
    _, version, header_size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this version of nacre reads {_VERSION}; "
            "run the program again"
        )
    body, seal_found = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not hmac.compare_digest(_seal_of(body, key), seal_found):
        raise SnapshotError(
            "the snapshot is cut off, was changed, or was made with another key; "
            "run the program again"
        )
    # The seal holds: from here on the bytes are our own.
    facts = json.loads(body[_HEAD.size : _HEAD.size + header_size])
    if facts["image"] != image:
        raise SnapshotError(
            f"the snapshot was taken of another sandbox image ({facts['image'][:12]}), this one is "
            f"{image[:12]}; run the program again"
        )
    return Snapshot(
        image=facts["image"],
        memory_bytes=facts["memoryBytes"],
        rejections=tuple(tuple(entry) for entry in facts["rejections"]),
        open_requests=tuple(facts["openRequests"]),
        pages=body[_HEAD.size + header_size :],
    )


def _seal_of(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(
        body, key=key, digest_size=_SEAL_BYTES, person=b"nacre-snapshot"
    ).digest()
