"""The system call filter: compiled by the supervisor with libseccomp, installed by the worker."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.report import NotApplied
from nacre.sandbox.hardening.syscalls import (
    ALLOWED,
    ALLOWED_WITH_CONDITIONS,
    FATAL,
    OWN_PROCESS_ID,
)

# To be raised when `compile_filter` comes to make other bytes from the same tables.
FILTER_VERSION = "1"

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_ALL_THREADS = 1

_INSTRUCTION_BYTES = 8
_MAX_INSTRUCTIONS = 4096
_BINARY_TREE = 2


class SeccompUnavailableError(Exception):
    """No filter can be compiled here; the message says why and goes into the worker's report."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def compile_filter() -> bytes:
    """The BPF program for workers on this machine; raises SeccompUnavailableError.

    Takes some 15 ms the first time, most of it spent by pyseccomp in looking for libseccomp.
    """
    if sys.platform != "linux":
        raise SeccompUnavailableError(f"not available on {sys.platform}")
    try:
        # Importing it runs ldconfig: no worker should, and not every machine has libseccomp.
        import pyseccomp  # pyright: ignore[reportMissingTypeStubs]
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        raise SeccompUnavailableError(f"pyseccomp does not load: {error}") from error
    try:
        return _export(_with_rules(pyseccomp))
    except (OSError, ValueError) as error:
        raise SeccompUnavailableError(f"libseccomp refuses the filter: {error}") from error


def filter_cache_key() -> str:
    """Names what `compile_filter` gives: bytes cached under the same key filter the same."""
    import hashlib

    tables = repr((ALLOWED, ALLOWED_WITH_CONDITIONS, FATAL))
    digest = hashlib.sha256(tables.encode()).hexdigest()[:16]
    return f"seccomp-{FILTER_VERSION}-{sys.platform}-{os.uname().machine}-{digest}"


def install_filter(bpf: bytes) -> str:
    """Filter the system calls of all threads of this process from now on; cannot be undone."""
    linux.require_linux()
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        raise NotApplied(f"not known for {os.uname().machine}")
    count, rest = divmod(len(bpf), _INSTRUCTION_BYTES)
    if rest or not 0 < count <= _MAX_INSTRUCTIONS:
        raise NotApplied(f"{len(bpf)} bytes are not a filter program")
    program = _Program(count, _bound_to_this_process(bpf))
    try:
        failed_thread = linux.system_call(
            number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.addressof(program)
        )
    except OSError as error:
        raise NotApplied(linux.explain(error)) from error
    if failed_thread:
        raise NotApplied(f"thread {failed_thread} has another filter")
    return f"{count} instructions; other system calls fail with EPERM or end the process"


def _bound_to_this_process(bpf: bytes) -> bytes:
    placeholder = OWN_PROCESS_ID.to_bytes(4, sys.byteorder)
    if bpf.count(placeholder) != 1:
        raise NotApplied("the filter has no single place for the worker's process id")
    return bpf.replace(placeholder, os.getpid().to_bytes(4, sys.byteorder))


def _with_rules(pyseccomp: Any) -> Any:
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    # A 32-bit call in a 64-bit process has one purpose only: to get around this filter.
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)

    def number(name: str) -> int:
        return pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)

    # A negative number: this architecture has no such call, or libseccomp is older than the call.
    for name in filter(lambda name: number(name) >= 0, ALLOWED):
        rules.add_rule(pyseccomp.ALLOW, name)
    for name in filter(lambda name: number(name) >= 0, FATAL):
        rules.add_rule(pyseccomp.KILL_PROCESS, name)
    for name, conditions in ALLOWED_WITH_CONDITIONS:
        arguments = [
            pyseccomp.Arg(position, pyseccomp.MASKED_EQ, mask, value)
            for position, mask, value in conditions
        ]
        rules.add_rule(pyseccomp.ALLOW, name, *arguments)
    return rules


def _export(rules: Any) -> bytes:
    with os.fdopen(os.memfd_create("seccomp"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
