"""What the process may inherit, keep and become: parent, descriptors, privileges, surroundings."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.report import NotApplied

if TYPE_CHECKING:
    from collections.abc import Collection

PARENT_GONE_EXIT_CODE = 70

# Importing `signal` for one number would double the time that this module takes to load.
_SIGKILL = 9

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522

_STANDARD_DESCRIPTORS = frozenset({0, 1, 2})
_DESCRIPTOR_FOLDERS = ("/proc/self/fd", "/dev/fd")
_TASK_FOLDER = "/proc/self/task"


def die_with_parent(parent_pid: int) -> str:
    linux.require_linux()
    try:
        linux.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    finally:
        # A parent that died before the call above sends no signal: then this is an orphan already.
        if os.getppid() != parent_pid:
            os._exit(PARENT_GONE_EXIT_CODE)
    return f"SIGKILL when the thread that started this worker in process {parent_pid} ends"


def leave_surroundings() -> str:
    # Python itself adds LC_CTYPE to an environment that was started empty.
    names = sorted(os.environ)
    os.environ.clear()
    os.umask(0o077)
    os.chdir("/")
    return f"in /, umask 077, environment empty (removed: {', '.join(names) or 'nothing'})"


def open_descriptors() -> frozenset[int]:
    """The descriptors open now; raises OSError where the system does not list them."""
    for folder in _DESCRIPTOR_FOLDERS:
        with contextlib.suppress(OSError):
            return frozenset(int(name) for name in os.listdir(folder) if _is_open(int(name)))
    raise OSError(f"none of {', '.join(_DESCRIPTOR_FOLDERS)} can be listed")


def close_descriptors(*, keep: Collection[int]) -> str:
    """Close all but 0, 1, 2 and those to keep."""
    surplus = sorted(open_descriptors() - _STANDARD_DESCRIPTORS - frozenset(keep))
    for descriptor in surplus:
        os.close(descriptor)
    kept = ", ".join(map(str, sorted({*_STANDARD_DESCRIPTORS, *keep})))
    return f"closed {len(surplus)}, kept {kept}"


def ensure_single_thread() -> str:
    """Landlock and capabilities are per thread: a second one would be outside of them."""
    linux.require_linux()
    count = len(os.listdir(_TASK_FOLDER))
    if count != 1:
        raise NotApplied(f"{count} threads run; landlock covers only the one that hardens")
    return "no other thread runs"


def drop_capabilities() -> str:
    """Without this a worker of root could raise its own limits again."""
    linux.require_linux()
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        raise NotApplied(f"not known for {os.uname().machine}")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none_of_them = (ctypes.c_uint32 * 6)()
    linux.system_call(number, ctypes.addressof(header), ctypes.addressof(none_of_them))
    return "effective, permitted and inheritable sets are empty"


def forbid_new_privileges() -> str:
    linux.require_linux()
    linux.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "set-user-id programs gain nothing"


def forbid_dumping() -> str:
    linux.require_linux()
    linux.prctl(_PR_SET_DUMPABLE, 0)
    return "no core dump, no debugger of the same user"


def _is_open(descriptor: int) -> bool:
    # Listing a folder opens one descriptor that is in the list and gone afterwards.
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
