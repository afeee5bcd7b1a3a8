"""Locks a sandbox worker's process down with all the platform gives; knows nothing of WebAssembly.

The supervisor calls `compile_filter` once and starts workers; a worker loads all it will ever need,
then calls `harden`. Afterwards it can compute, use the descriptors it has, and exit; nothing else.
What a worker has to do before and after, because of this:

- import every module first; nothing can be opened any more, so a later import says "not found";
- make one instance of each WebAssembly module first, and keep the descriptors that hold the image
  of its memory: the difference of `open_descriptors()` before and after;
- create no ctypes callback afterwards, and leave by `os._exit`: callbacks live in a page that is
  no longer writable, so creating or freeing one ends the process with SIGSEGV;
- write with `send`, `write` or `writev`: `sendmsg` and `recvmsg`, which pass descriptors, are shut.

The parent must have started the worker from a thread that lives on: Linux sends the parent-death
signal when that thread ends, not only when the process does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from nacre.sandbox.hardening.linux import NotApplied
from nacre.sandbox.hardening.measures import (
    PARENT_GONE_EXIT_CODE,
    close_descriptors,
    die_with_parent,
    drop_capabilities,
    ensure_single_thread,
    forbid_dumping,
    forbid_new_executable_memory,
    forbid_new_privileges,
    leave_surroundings,
    limit_resources,
    open_descriptors,
    restrict_with_landlock,
    seal_executable_memory,
)
from nacre.sandbox.hardening.seccomp import (
    FILTER_VERSION,
    SeccompUnavailableError,
    compile_filter,
    filter_cache_key,
    install_filter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = [
    "FILTER_VERSION",
    "PARENT_GONE_EXIT_CODE",
    "HardeningReport",
    "Measure",
    "SeccompUnavailableError",
    "compile_filter",
    "filter_cache_key",
    "harden",
    "open_descriptors",
]

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One protection: whether it holds in this process, and how or why not."""

    name: str
    applied: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class HardeningReport:
    """Every measure that was tried, in the order in which it was tried."""

    measures: tuple[Measure, ...]

    @property
    def missing(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if not measure.applied)

    def to_json(self) -> dict[str, list[dict[str, str | bool]]]:
        """A JSON value, not text: it is a part of a larger message."""
        return {
            "measures": [
                {"name": measure.name, "applied": measure.applied, "detail": measure.detail}
                for measure in self.measures
            ]
        }

    @classmethod
    def from_json(cls, value: object) -> HardeningReport:
        """Raises ValueError for anything that `to_json` would not have written."""
        measures = cast("list[object]", _field(value, "measures", list))
        return cls(measures=tuple(_measure_from_json(item) for item in measures))


def harden(
    *,
    keep_fds: Collection[int],
    parent_pid: int,
    seccomp_bpf: bytes | None,
    seccomp_problem: str,
    max_data_bytes: int,
) -> HardeningReport:
    """Apply every measure that this machine has, and say of each whether it holds.

    Never raises; exits with `PARENT_GONE_EXIT_CODE` when the parent has died meanwhile.
    `max_data_bytes` bounds all private writable memory of the process, the interpreter included.
    `seccomp_problem` is why there is no `seccomp_bpf`, for the report.
    """

    def install_seccomp() -> str:
        if seccomp_bpf is None:
            raise NotApplied(seccomp_problem or "no filter was given")
        return install_filter(seccomp_bpf)

    # The order matters. What reads /proc comes before "not dumpable", which shuts it to non-root;
    # landlock and seccomp need "no new privileges"; landlock needs a free descriptor, so the limits
    # follow it; and seccomp is last because it forbids what all the others do.
    steps: tuple[tuple[str, Callable[[], str]], ...] = (
        ("parent_death_signal", lambda: die_with_parent(parent_pid)),
        ("surroundings_left", leave_surroundings),
        ("descriptors_closed", lambda: close_descriptors(keep=keep_fds)),
        ("single_thread", ensure_single_thread),
        ("executable_memory_sealed", seal_executable_memory),
        ("no_new_executable_memory", forbid_new_executable_memory),
        ("capabilities_dropped", drop_capabilities),
        ("no_new_privileges", forbid_new_privileges),
        ("not_dumpable", forbid_dumping),
        ("landlock", restrict_with_landlock),
        ("resource_limits", lambda: limit_resources(max_data_bytes=max_data_bytes)),
        ("seccomp", install_seccomp),
    )
    return HardeningReport(measures=tuple(attempt(name, step) for name, step in steps))


def attempt(name: str, step: Callable[[], str]) -> Measure:
    """Run one step; it returns a detail, or raises and becomes a measure that is not applied."""
    try:
        return Measure(name=name, applied=True, detail=step())
    except NotApplied as refusal:
        return Measure(name=name, applied=False, detail=str(refusal))
    except Exception as error:
        # A worker with one protection less still needs the others, whatever went wrong here.
        return Measure(name=name, applied=False, detail=f"{type(error).__name__}: {error}")


def _measure_from_json(value: object) -> Measure:
    return Measure(
        name=_field(value, "name", str),
        applied=_field(value, "applied", bool),
        detail=_field(value, "detail", str),
    )


def _field(value: object, key: str, kind: type[_Kind]) -> _Kind:
    content = cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None
    if not isinstance(content, kind):
        raise ValueError(f"a hardening report needs {key!r} as {kind.__name__}, not {content!r}")
    return content
