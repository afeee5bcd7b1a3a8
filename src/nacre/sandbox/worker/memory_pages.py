"""A VM's memory as its difference from the image: what a snapshot stores.

Pages are kept as the exclusive-or with the image's page: most changed pages differ in a reference
count or two, and a page of zeros compresses to nothing.
"""

import ctypes
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from nacre.sandbox.worker.wasm_runtime import Instance

PAGE_BYTES: Final = 4096
# Compared first in big steps: most of an image is never touched.
_STRIDE_BYTES: Final = 65536
_INDEX = struct.Struct("<I")
_RECORD_BYTES: Final = _INDEX.size + PAGE_BYTES

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_memcmp.restype = ctypes.c_int


class BaseMemory:
    """The memory that every VM of an image starts with."""

    def __init__(self, content: bytes, stack_pointer: int) -> None:
        self._content = content
        self._stack_pointer = stack_pointer
        self._strides = [
            content[at : at + _STRIDE_BYTES] for at in range(0, len(content), _STRIDE_BYTES)
        ]

    def changed_pages(self, instance: Instance) -> Iterator[bytes]:
        """The difference of every page that changed, with its number; in pieces of any size."""
        size = instance.current_memory_bytes()
        # Below the stack pointer is what returned calls left behind: nothing will read it again.
        for stride in range(self._stack_pointer // _STRIDE_BYTES, size // _STRIDE_BYTES):
            at = stride * _STRIDE_BYTES
            base = self._strides[stride] if stride < len(self._strides) else _ZERO_STRIDE
            if _memcmp(instance.base + at, base, _STRIDE_BYTES):
                yield _differences(instance.read(at, _STRIDE_BYTES), base, at // PAGE_BYTES)

    def apply_pages(self, instance: Instance, pages: BinaryIO) -> None:
        """Put what `changed_pages` gave into a fresh instance of the same image."""
        while record := pages.read(_RECORD_BYTES):
            if len(record) != _RECORD_BYTES:
                raise ValueError("the pages of a snapshot are cut off")
            (number,) = _INDEX.unpack_from(record)
            at = number * PAGE_BYTES
            difference = record[_INDEX.size :]
            base = self._content[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
            instance.write(at, _exclusive_or(difference, base))


_ZERO_STRIDE: Final = bytes(_STRIDE_BYTES)


def _differences(memory: bytes, base: bytes, first_page: int) -> bytes:
    found: list[bytes] = []
    for at in range(0, _STRIDE_BYTES, PAGE_BYTES):
        page, base_page = memory[at : at + PAGE_BYTES], base[at : at + PAGE_BYTES]
        if page != base_page:
            number = first_page + at // PAGE_BYTES
            found += (_INDEX.pack(number), _exclusive_or(page, base_page))
    return b"".join(found)


def _exclusive_or(first: bytes, second: bytes) -> bytes:
    number = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return number.to_bytes(PAGE_BYTES, "little")
