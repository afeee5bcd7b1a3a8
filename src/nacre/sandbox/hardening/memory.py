"""Memory is writable or executable, never both, and nothing new becomes executable."""

from __future__ import annotations

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.report import NotApplied

_PROT_READ_EXEC = 0x1 | 0x4
_PR_SET_MDWE = 65
_PR_MDWE_REFUSE_EXEC_GAIN = 1


def seal_executable_memory() -> str:
    """Make pages that are writable and executable read-only.

    ctypes keeps its callbacks in such a page; they still run. Creating or freeing one now faults.
    """
    linux.require_linux()
    regions = _writable_and_executable()
    for start, end in regions:
        linux.protect_memory(start, end - start, _PROT_READ_EXEC)
    if left := len(_writable_and_executable()):
        raise NotApplied(f"{left} mappings are still writable and executable")
    return f"{len(regions)} mappings were writable and executable; none is now"


def forbid_new_executable_memory() -> str:
    """The kernel's own rule, which holds without seccomp too."""
    linux.require_linux()
    try:
        linux.prctl(_PR_SET_MDWE, _PR_MDWE_REFUSE_EXEC_GAIN)
    except OSError as error:
        raise NotApplied(linux.explain(error)) from error
    return "no mapping gains the right to execute"


def _writable_and_executable() -> list[tuple[int, int]]:
    with open("/proc/self/maps", "rb") as maps:
        lines = maps.read().splitlines()
    ranges = [line.split(b" ", 2)[0].split(b"-") for line in lines if b" rwx" in line[:60]]
    return [(int(start, 16), int(end, 16)) for start, end in ranges]
