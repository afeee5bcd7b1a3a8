"""Compiles and installs the seccomp filter of a worker.

The allowed calls were found with strace, while Python and wasmtime create instances, grow memory,
trap, collect garbage, print a traceback and exit. All other calls fail with EPERM.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.linux import NotApplied, NotAvailable

# The position of an argument, a bit mask, and the value of the masked bits.
Condition = tuple[int, int, int]

_PROT_READ_WRITE = 0x1 | 0x2
_MAP_TYPE, _MAP_PRIVATE, _MAP_GROWSDOWN = 0x0F, 0x02, 0x100
_MREMAP_MAYMOVE = 0x1
_MADV_DONTNEED, _MADV_FREE = 4, 8
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET = 0, 1, 9, 10
_FUTEX_PRIVATE_OR_REALTIME = 128 | 256
_MSG_PEEK, _MSG_DONTWAIT, _MSG_WAITALL, _MSG_NOSIGNAL = 0x2, 0x40, 0x100, 0x4000
_F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL = 1, 2, 3, 4
_FIONBIO = 0x5421

# The filter is compiled before the worker starts. `install_filter` replaces this by its process id.
OWN_PROCESS_ID = 0x5EA1ED1D


def _no_other_bits(argument: int, allowed: int) -> Condition:
    return (argument, 0xFFFF_FFFF & ~allowed, 0)


def _equals(argument: int, value: int) -> Condition:
    # The kernel reads 32 bits; the upper half of the register is undefined.
    return (argument, 0xFFFF_FFFF, value)


def _null(argument: int) -> Condition:
    return (argument, 0xFFFF_FFFF_FFFF_FFFF, 0)


ALLOWED = (
    # Descriptors that are already open.
    "read",
    "readv",
    "write",
    "writev",
    "close",
    "shutdown",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    # Memory; mmap, mprotect and others are below.
    "munmap",
    "brk",
    # Time and random numbers.
    "clock_gettime",
    "clock_getres",
    "gettimeofday",
    "time",
    "nanosleep",
    "clock_nanosleep",
    "getrandom",
    # WebAssembly traps arrive as signals.
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    # Exit, and the calls of abort().
    "getpid",
    "gettid",
    "sched_yield",
    "exit",
    "exit_group",
)

# A call is allowed if all conditions of one of its rows are true.
ALLOWED_WITH_CONDITIONS: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    # Never executable. The data limit does not include shared or growing-down memory.
    (
        "mmap",
        (
            _no_other_bits(2, _PROT_READ_WRITE),
            (3, _MAP_TYPE | _MAP_GROWSDOWN, _MAP_PRIVATE),
        ),
    ),
    ("mprotect", (_no_other_bits(2, _PROT_READ_WRITE),)),
    ("mremap", (_no_other_bits(3, _MREMAP_MAYMOVE),)),
    ("madvise", (_equals(2, _MADV_DONTNEED),)),
    ("madvise", (_equals(2, _MADV_FREE),)),
    # Used by the locks of Python and Rust. Priority-inheriting futexes had kernel vulnerabilities.
    *(
        ("futex", ((1, 0xFFFF_FFFF & ~_FUTEX_PRIVATE_OR_REALTIME, operation),))
        for operation in (_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET)
    ),
    # Only to the peer. Out-of-band data on Unix sockets had kernel vulnerabilities.
    ("sendto", (_no_other_bits(3, _MSG_DONTWAIT | _MSG_NOSIGNAL), _null(4))),
    ("recvfrom", (_no_other_bits(3, _MSG_PEEK | _MSG_DONTWAIT | _MSG_WAITALL | _MSG_NOSIGNAL),)),
    *(("fcntl", (_equals(1, command),)) for command in (_F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL)),
    # Used by `socket.settimeout` and `setblocking`.
    ("ioctl", (_equals(1, _FIONBIO),)),
    ("tgkill", (_equals(0, OWN_PROCESS_ID),)),
)

# No library makes these calls by accident, so they kill the process.
FATAL = (
    "execve",
    "execveat",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "kcmp",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "unshare",
    "setns",
    "mount",
    "umount2",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "pivot_root",
    "chroot",
    "open_by_handle_at",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "iopl",
    "ioperm",
    "modify_ldt",
    "add_key",
    "request_key",
    "keyctl",
)


# Increase it when `compile_filter` changes its output for the same tables.
FILTER_VERSION = "1"

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_ALL_THREADS = 1

_INSTRUCTION_BYTES = 8
_MAX_INSTRUCTIONS = 4096
_BINARY_TREE = 2


class FilterNotCompiledError(Exception):
    """The filter could not be compiled. The message is part of the worker's report."""


def compile_filter() -> bytes:
    """Compile the BPF program for workers on this machine. Raises FilterNotCompiledError.

    Takes about 15 ms the first time, mostly because pyseccomp searches for libseccomp.
    """
    if sys.platform != "linux":
        raise FilterNotCompiledError(f"not available on {sys.platform}")
    try:
        # Imported here because it runs ldconfig, and because a machine may lack libseccomp.
        import pyseccomp  # pyright: ignore[reportMissingTypeStubs]
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        raise FilterNotCompiledError(f"pyseccomp does not load: {error}") from error
    try:
        return _export(_with_rules(pyseccomp))
    except (OSError, ValueError) as error:
        raise FilterNotCompiledError(f"libseccomp rejects the filter: {error}") from error


def filter_cache_key() -> str:
    """Return a key that identifies the output of `compile_filter`."""
    import hashlib

    tables = repr((ALLOWED, ALLOWED_WITH_CONDITIONS, FATAL))
    digest = hashlib.sha256(tables.encode()).hexdigest()[:16]
    return f"seccomp-{FILTER_VERSION}-{sys.platform}-{os.uname().machine}-{digest}"


def install_filter(bpf: bytes, problem: str = "") -> str:
    """Install the filter for all threads of this process. This cannot be undone.

    `problem` says why there is no filter, if `bpf` is empty.
    """
    number = _seccomp_number()
    if not bpf:
        raise NotApplied(problem or "no filter was given")
    count, rest = divmod(len(bpf), _INSTRUCTION_BYTES)
    if rest or not 0 < count <= _MAX_INSTRUCTIONS:
        raise NotApplied(f"{len(bpf)} bytes are not a filter program")
    # Not above, because the supervisor imports this module too.
    import ctypes

    class Program(ctypes.Structure):
        """`struct sock_fprog`."""

        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    program = Program(count, _bound_to_this_process(bpf))
    try:
        failed_thread = linux.system_call(
            number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.addressof(program)
        )
    except OSError as error:
        raise linux.refusal_from(error) from error
    if failed_thread:
        raise NotApplied(f"thread {failed_thread} has another filter")
    return f"{count} instructions; other system calls fail with EPERM or end the process"


def _seccomp_number() -> int:
    """Return the number of the system call. Raises NotAvailable if the kernel has no filters."""
    linux.require_linux()
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        raise NotAvailable(f"not known for {os.uname().machine}")
    try:
        # A kernel that has filters reads the missing program, and fails with EFAULT.
        linux.system_call(number, _SET_MODE_FILTER, 0, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise linux.refusal_from(error, errno.EINVAL) from error
    return number


def _bound_to_this_process(bpf: bytes) -> bytes:
    placeholder = OWN_PROCESS_ID.to_bytes(4, sys.byteorder)
    if bpf.count(placeholder) != 1:
        raise NotApplied("the filter has no single place for the worker's process id")
    return bpf.replace(placeholder, os.getpid().to_bytes(4, sys.byteorder))


def _with_rules(pyseccomp: Any) -> Any:
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    # A 32-bit call in a 64-bit process can only be an attempt to bypass this filter.
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)

    def number(name: str) -> int:
        return pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)

    # The number is negative if the architecture has no such call or libseccomp is too old.
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
