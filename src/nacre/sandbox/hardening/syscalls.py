"""Which system calls a hardened worker may make, with which arguments, and which ones end it.

Found with strace: Python and wasmtime instantiating, growing memory, trapping, collecting garbage,
printing a traceback and exiting. A call that is in no table here fails with EPERM.
"""

from __future__ import annotations

# An argument's position, the bits to look at, and what they must be.
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

# A filter is compiled before its worker exists; `install_filter` puts the worker's own id here.
OWN_PROCESS_ID = 0x5EA1ED1D


def _no_other_bits(argument: int, allowed: int) -> Condition:
    return (argument, 0xFFFF_FFFF & ~allowed, 0)


def _equals(argument: int, value: int) -> Condition:
    # The kernel takes these as 32 bits; the upper half of the register may hold anything.
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
    # Time and chance.
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
    # The end, and what abort() asks on the way.
    "getpid",
    "gettid",
    "sched_yield",
    "exit",
    "exit_group",
)

# A call passes when all conditions of one of its rows hold.
ALLOWED_WITH_CONDITIONS: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    # Never executable. Shared or growing-down memory would not count as data in the limits.
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
    # Locks of Python and Rust use these; the priority-inheriting ones had one kernel hole too many.
    *(
        ("futex", ((1, 0xFFFF_FFFF & ~_FUTEX_PRIVATE_OR_REALTIME, operation),))
        for operation in (_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET)
    ),
    # To the peer and nobody else; out-of-band data on Unix sockets had kernel holes as well.
    ("sendto", (_no_other_bits(3, _MSG_DONTWAIT | _MSG_NOSIGNAL), _null(4))),
    ("recvfrom", (_no_other_bits(3, _MSG_PEEK | _MSG_DONTWAIT | _MSG_WAITALL | _MSG_NOSIGNAL),)),
    *(("fcntl", (_equals(1, command),)) for command in (_F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL)),
    # What `socket.settimeout` and `setblocking` are made of.
    ("ioctl", (_equals(1, _FIONBIO),)),
    ("tgkill", (_equals(0, OWN_PROCESS_ID),)),
)

# No library asks for these by accident: whoever does is hostile, and gets no second try.
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
