"""Measures that restrict a worker process: Landlock, resource limits, memory, privileges."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.linux import NotApplied, NotAvailable

if TYPE_CHECKING:
    from collections.abc import Collection


# The same numbers on every architecture.
_CREATE_RULESET = 444
_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1

# All file system rights, by the Landlock version that introduced the last of them.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_SINCE = 4
_BIND_AND_CONNECT_TCP = 0b11
_SCOPES_SINCE = 6
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def restrict_with_landlock() -> str:
    """Deny all rights that this kernel knows, with a ruleset that has no rules."""
    linux.require_linux()
    try:
        version = linux.system_call(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
        _restrict(_ruleset_fields(version))
    except OSError as error:
        raise linux.refusal_from(error) from error
    return f"version {version}: refuses {', '.join(_refused_rights(version))}"


def _ruleset_fields(version: int) -> list[int]:
    """Return the fields of `struct landlock_ruleset_attr`. Later versions have more fields."""
    fields = [max(rights for since, rights in _FILE_RIGHTS.items() if since <= version)]
    if version >= _NETWORK_SINCE:
        fields.append(_BIND_AND_CONNECT_TCP)
    if version >= _SCOPES_SINCE:
        fields.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    return fields


def _restrict(fields: list[int]) -> None:
    import ctypes

    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = linux.system_call(
        _CREATE_RULESET, ctypes.addressof(attributes), ctypes.sizeof(attributes), 0
    )
    try:
        linux.system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _refused_rights(version: int) -> list[str]:
    refused = ["all paths"]
    if version >= _NETWORK_SINCE:
        refused.append("TCP bind and connect")
    if version >= _SCOPES_SINCE:
        refused.append("abstract sockets and signals outside")
    return refused


if sys.platform != "win32":
    import resource

# Descriptors 0 to 2 are in use, so no new one can be created. `poll` accepts this many entries.
_MAX_DESCRIPTORS = 3
# The data limit does not include the stack, so the stack needs its own limit. WebAssembly frames
# get half of it, so that deep recursion becomes an error of the program.
_MAX_STACK_BYTES = 64 * 1024 * 1024


def limit_resources(*, max_data_bytes: int) -> str:
    """Lower all resource limits. Raises NotApplied if one cannot be lowered."""
    # Address space is not limited: wasmtime reserves 4 GiB for each memory and uses little of it.
    # The data limit covers private writable memory.
    if sys.platform == "win32":
        raise NotAvailable(f"not available on {sys.platform}")
    limits = {
        "CORE": 0,
        "FSIZE": 0,
        "NPROC": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NOFILE": _MAX_DESCRIPTORS,
        "STACK": _MAX_STACK_BYTES,
        "DATA": max_data_bytes,
    }
    outcomes = {name: _lower(name, most) for name, most in limits.items()}
    detail = ", ".join(f"{name.lower()} {outcome}" for name, outcome in outcomes.items())
    if os.getuid() == 0:
        detail += "; nproc has no effect on root"
    if any(isinstance(outcome, str) for outcome in outcomes.values()):
        raise NotApplied(detail)
    return detail


def _lower(name: str, most: int) -> int | str:
    """Return the new limit, or why it could not be set."""
    kind: int | None = getattr(resource, f"RLIMIT_{name}", None)
    if kind is None:
        return f"(not known on {sys.platform})"
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError) as error:
        return f"({error})"
    return value


_PROT_READ_EXEC = 0x1 | 0x4
_PR_SET_MDWE = 65
_PR_MDWE_REFUSE_EXEC_GAIN = 1


def seal_executable_memory() -> str:
    """Make pages that are writable and executable read-only."""
    # ctypes keeps callbacks in such a page. They still run, but creating or freeing one faults.
    linux.require_linux()
    regions = _writable_and_executable()
    for start, end in regions:
        linux.protect_memory(start, end - start, _PROT_READ_EXEC)
    if left := len(_writable_and_executable()):
        raise NotApplied(f"{left} mappings are still writable and executable")
    return f"{len(regions)} mappings were writable and executable; none is now"


def forbid_new_executable_memory() -> str:
    """Forbid it in the kernel, which works without seccomp too."""
    linux.require_linux()
    try:
        linux.prctl(_PR_SET_MDWE, _PR_MDWE_REFUSE_EXEC_GAIN)
    except OSError as error:
        raise linux.refusal_from(error, errno.EINVAL) from error
    return "no mapping gains the right to execute"


def _writable_and_executable() -> list[tuple[int, int]]:
    with open("/proc/self/maps", "rb") as maps:
        lines = maps.read().splitlines()
    ranges = [line.split(b" ", 2)[0].split(b"-") for line in lines if b" rwx" in line[:60]]
    return [(int(start, 16), int(end, 16)) for start, end in ranges]


PARENT_GONE_EXIT_CODE = 70

# Importing `signal` for this number would double the import time of this module.
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
        # If the parent died before this call, there is no signal.
        if os.getppid() != parent_pid:
            os._exit(PARENT_GONE_EXIT_CODE)
    return f"SIGKILL when the thread that started this worker in process {parent_pid} ends"


def clear_surroundings() -> str:
    # Python adds LC_CTYPE to an empty environment.
    names = sorted(os.environ)
    os.environ.clear()
    os.umask(0o077)
    os.chdir("/")
    return f"in /, umask 077, environment empty (removed: {', '.join(names) or 'nothing'})"


def open_descriptors() -> frozenset[int]:
    """Return the open descriptors. Raises OSError if the system does not list them."""
    for folder in _DESCRIPTOR_FOLDERS:
        with contextlib.suppress(OSError):
            return frozenset(int(name) for name in os.listdir(folder) if _is_open(int(name)))
    raise OSError(f"none of {', '.join(_DESCRIPTOR_FOLDERS)} can be listed")


def close_descriptors(*, keep: Collection[int]) -> str:
    """Close all descriptors except 0, 1, 2 and those in `keep`."""
    extra = sorted(open_descriptors() - _STANDARD_DESCRIPTORS - frozenset(keep))
    for descriptor in extra:
        os.close(descriptor)
    kept = ", ".join(map(str, sorted({*_STANDARD_DESCRIPTORS, *keep})))
    return f"closed {len(extra)}, kept {kept}"


def ensure_single_thread() -> str:
    """Check that there is one thread. Landlock and capabilities apply to single threads."""
    linux.require_linux()
    count = len(os.listdir(_TASK_FOLDER))
    if count != 1:
        raise NotApplied(f"{count} threads run; landlock covers only the one that hardens")
    return "no other thread runs"


def drop_capabilities() -> str:
    """Drop all capabilities, so that a worker of root cannot raise its limits again."""
    linux.require_linux()
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        raise NotAvailable(f"not known for {os.uname().machine}")
    import ctypes

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
    # The list contains the descriptor of the listing itself, which is closed afterwards.
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
