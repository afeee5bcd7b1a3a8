"""Linux system calls for which Python has no function."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


class NotApplied(Exception):
    """A measure failed. The message says why."""


class NotAvailable(NotApplied):
    """The kernel or the platform does not have the measure."""


def require_linux() -> None:
    if sys.platform != "linux":
        raise NotAvailable(f"not available on {sys.platform}")


def prctl(option: int, argument: int = 0) -> int:
    """Call `prctl` with zeros for the unused arguments. Raises OSError."""
    return _check(_libc().prctl(option, *_words(argument, 0, 0, 0)))


def system_call(number: int, *arguments: int) -> int:
    """Make a system call. Pass buffers as `ctypes.addressof(buffer)`. Raises OSError."""
    return _check(_libc().syscall(*_words(number, *arguments)))


def protect_memory(start: int, length: int, protection: int) -> None:
    """Call `mprotect`. Raises OSError."""
    _check(_libc().mprotect(*_words(start, length), protection))


def refusal_from(error: OSError, *unknown: int) -> NotApplied:
    """Return why a measure is not applied. `unknown` has more errors of kernels without it."""
    text = f"{errno.errorcode.get(error.errno or 0, 'error')}: {error.strerror}"
    if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, *unknown):
        return NotAvailable(f"not available in this kernel ({text})")
    return NotApplied(text)


def _words(*values: int) -> list[ctypes.c_ulong]:
    # Imported here and in the other functions, because the supervisor calls none of them.
    import ctypes

    # These functions are variadic: a plain int would be passed as 32 bits.
    return [ctypes.c_ulong(value) for value in values]


def _check(result: int) -> int:
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
