"""Resource limits of a worker: how much it may take of what the kernel counts per process."""

from __future__ import annotations

import os
import sys

from nacre.sandbox.hardening.report import NotApplied

if sys.platform != "win32":
    import resource

# Descriptors 0 to 2 are taken, so no new one can be made; `poll` refuses more entries than this.
_MAX_DESCRIPTORS = 3
# Stack is not counted as data: without its own limit it would be a way around that one. WebAssembly
# frames get half of it, so that deep recursion ends as an error of the program.
_MAX_STACK_BYTES = 64 * 1024 * 1024


def limit_resources(*, max_data_bytes: int) -> str:
    """Lower every limit that can be lowered; raises NotApplied when one could not.

    There is no limit on address space: wasmtime reserves 4 GiB and guards for each memory, and
    touches little of it. Data counts what is private and writable, which is what costs memory.
    """
    if sys.platform == "win32":
        raise NotApplied(f"not available on {sys.platform}")
    wanted = {
        "CORE": 0,
        "FSIZE": 0,
        "NPROC": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NOFILE": _MAX_DESCRIPTORS,
        "STACK": _MAX_STACK_BYTES,
        "DATA": max_data_bytes,
    }
    outcomes = {name: _lower(name, most) for name, most in wanted.items()}
    detail = ", ".join(f"{name.lower()} {outcome}" for name, outcome in outcomes.items())
    if os.getuid() == 0:
        detail += "; nproc has no effect on root"
    if any(isinstance(outcome, str) for outcome in outcomes.values()):
        raise NotApplied(detail)
    return detail


def _lower(name: str, most: int) -> int | str:
    """The limit now in force, or why it could not be set."""
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
