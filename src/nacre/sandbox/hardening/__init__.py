"""Restricts a worker process with the security features of the platform.

The supervisor calls `compile_filter` once and starts workers. A worker loads all it needs and then
calls `harden`. After that it can only compute, use its open descriptors, and exit. So a worker must

- import all modules before: no file can be opened later, so an import fails with "not found";
- create one instance of each WebAssembly module before, and keep the descriptors of its memory
  image: the difference of `open_descriptors()` before and after;
- not create or free a ctypes callback later, and exit with `os._exit`: callbacks are in a page that
  is no longer writable, so the process would end with SIGSEGV;
- write with `send`, `write` or `writev`: `sendmsg` and `recvmsg`, which pass descriptors, fail.

The thread that starts a worker must not end before it: Linux sends the parent-death signal when
that thread ends, not only when the process does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from nacre.sandbox.hardening.linux import NotApplied, NotAvailable
from nacre.sandbox.hardening.measures import (
    PARENT_GONE_EXIT_CODE,
    clear_surroundings,
    close_descriptors,
    die_with_parent,
    drop_capabilities,
    ensure_single_thread,
    forbid_dumping,
    forbid_new_executable_memory,
    forbid_new_privileges,
    limit_resources,
    open_descriptors,
    restrict_with_landlock,
    seal_executable_memory,
)
from nacre.sandbox.hardening.seccomp import (
    FILTER_VERSION,
    FilterNotCompiledError,
    compile_filter,
    filter_cache_key,
    install_filter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = [
    "FILTER_VERSION",
    "PARENT_GONE_EXIT_CODE",
    "FilterNotCompiledError",
    "HardeningReport",
    "Measure",
    "compile_filter",
    "filter_cache_key",
    "harden",
    "open_descriptors",
]

_Kind = TypeVar("_Kind")

# Required unless the options of the sandbox say otherwise, on every kernel that has them.
_REQUIRED_WHERE_AVAILABLE = ("seccomp", "landlock")


# Not dataclasses: their import would be a fifth of the time in which a worker starts.
class Measure(NamedTuple):
    """One protection: whether it is applied in this process, and the details or the reason."""

    name: str
    applied: bool
    detail: str
    available: bool = True
    """False only if the kernel or the platform does not have it."""


class HardeningReport(NamedTuple):
    """All measures, in the order in which they were tried."""

    measures: tuple[Measure, ...]

    @property
    def missing(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if not measure.applied)

    def unmet(self, required: Collection[str] | None) -> tuple[Measure, ...]:
        """Return the required measures that are not applied.

        By default, seccomp and landlock are required if they are available.
        """
        names = _REQUIRED_WHERE_AVAILABLE if required is None else required
        found = {measure.name: measure for measure in self.measures}
        unmet: list[Measure] = []
        for name in names:
            measure = found.get(name) or Measure(name=name, applied=False, detail="not reported")
            if not measure.applied and (measure.available or required is not None):
                unmet.append(measure)
        return tuple(unmet)

    def to_json(self) -> dict[str, list[dict[str, str | bool]]]:
        """Return the report as a JSON value."""
        return {
            "measures": [
                {
                    "name": measure.name,
                    "applied": measure.applied,
                    "available": measure.available,
                    "detail": measure.detail,
                }
                for measure in self.measures
            ]
        }

    @classmethod
    def from_json(cls, value: object) -> HardeningReport:
        """Read the output of `to_json`. Raises ValueError for anything else."""
        measures = cast("list[object]", _field(value, "measures", list))
        return cls(measures=tuple(_measure_from_json(item) for item in measures))


def harden(
    *,
    keep_fds: Collection[int],
    parent_pid: int,
    seccomp_bpf: bytes,
    seccomp_problem: str,
    max_data_bytes: int,
) -> HardeningReport:
    """Apply all measures that this machine supports, and report which are applied.

    Never raises. Exits with `PARENT_GONE_EXIT_CODE` if the parent has died in the meantime.
    `max_data_bytes` limits all private writable memory of the process, including the interpreter.
    `seccomp_problem` says for the report why `seccomp_bpf` is empty.
    """
    # The order matters. Steps that read /proc come before "not dumpable", which denies it to
    # non-root. Landlock and seccomp need "no new privileges". Landlock needs a free descriptor, so
    # the limits follow it. Seccomp is last because it forbids the calls of all other steps.
    steps: tuple[tuple[str, Callable[[], str]], ...] = (
        ("parent_death_signal", lambda: die_with_parent(parent_pid)),
        ("surroundings_cleared", clear_surroundings),
        ("descriptors_closed", lambda: close_descriptors(keep=keep_fds)),
        ("single_thread", ensure_single_thread),
        ("executable_memory_sealed", seal_executable_memory),
        ("no_new_executable_memory", forbid_new_executable_memory),
        ("capabilities_dropped", drop_capabilities),
        ("no_new_privileges", forbid_new_privileges),
        ("not_dumpable", forbid_dumping),
        ("landlock", restrict_with_landlock),
        ("resource_limits", lambda: limit_resources(max_data_bytes=max_data_bytes)),
        ("seccomp", lambda: install_filter(seccomp_bpf, seccomp_problem)),
    )
    return HardeningReport(measures=tuple(attempt(name, step) for name, step in steps))


def attempt(name: str, step: Callable[[], str]) -> Measure:
    """Run one step. It returns a detail; if it raises, the measure is reported as not applied."""
    try:
        return Measure(name=name, applied=True, detail=step())
    except NotApplied as refusal:
        is_available = not isinstance(refusal, NotAvailable)
        return Measure(name=name, applied=False, available=is_available, detail=str(refusal))
    except Exception as error:
        # A worker without one protection still needs the others.
        return Measure(name=name, applied=False, detail=f"{type(error).__name__}: {error}")


def _measure_from_json(value: object) -> Measure:
    return Measure(
        name=_field(value, "name", str),
        applied=_field(value, "applied", bool),
        available=_field(value, "available", bool),
        detail=_field(value, "detail", str),
    )


def _field(value: object, key: str, kind: type[_Kind]) -> _Kind:
    content = cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None
    if not isinstance(content, kind):
        raise ValueError(f"a hardening report needs {key!r} as {kind.__name__}, not {content!r}")
    return content
