"""The process under test: prepares one act, hardens itself, acts, and says what happened.

A script, started as the supervisor starts a worker: `python -I -S worker.py <options as JSON>`.
An act is a generator: up to its `yield`, which names the descriptors to keep, it is not hardened.
It writes two lines of JSON: the report, then what the act returned.
"""

import ctypes
import errno
import gc
import importlib
import json
import mmap
import operator
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Any

Act = Generator[Collection[int], None, object]

# Made before hardening, so that the page of callbacks exists; never freed, as that would fault.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)

PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS = 1, 2, 0x20
PR_GET_DUMPABLE = 3
MSG_OOB = 1


def outcome(step: Callable[[], object]) -> str:
    try:
        step()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except Exception as error:
        return type(error).__name__
    return "allowed"


def libc(name: str, *arguments: int) -> int:
    """Call a function of libc that takes and returns words; raises OSError."""
    function = ctypes.CDLL(None, use_errno=True)[name]
    function.restype = ctypes.c_long
    result: int = function(*map(ctypes.c_ulong, arguments))
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def map_memory(protection: int, flags: int) -> int:
    return libc("mmap", 0, mmap.PAGESIZE, protection, flags, 2**64 - 1, 0)


def nothing(argument: Any) -> Act:
    yield ()
    return "survived"


def open_for_reading(argument: str) -> Act:
    yield ()
    return outcome(lambda: os.open(argument, os.O_RDONLY))


def create_a_file(argument: str) -> Act:
    """A file without a name, in a folder: where nothing stops it, nothing is left behind."""
    yield ()
    return outcome(lambda: os.open(argument, os.O_WRONLY | os.O_TMPFILE))


def look_at_a_path(argument: str) -> Act:
    yield ()
    return outcome(lambda: os.stat(argument))


def write_to_an_open_file(argument: Any) -> Act:
    with tempfile.TemporaryFile() as file:
        yield (file.fileno(),)
        return outcome(lambda: os.write(file.fileno(), b"x"))


def create_a_socket(argument: int) -> Act:
    yield ()
    return outcome(lambda: socket.socket(argument))


def connect_a_socket(argument: Any) -> Act:
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    address = listener.getsockname()
    yield (client.fileno(), listener.fileno())
    return outcome(lambda: client.connect(address))


def fork(argument: Any) -> Act:
    yield ()

    def fork_once() -> None:
        if os.fork() == 0:
            os._exit(0)

    return outcome(fork_once)


def spawn(argument: Any) -> Act:
    yield ()
    return outcome(lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}))


def start_a_thread(argument: Any) -> Act:
    yield ()
    return outcome(threading.Thread(target=print).start)


def execute(argument: Any) -> Act:
    yield ()
    return outcome(lambda: os.execve(sys.executable, [sys.executable, "-V"], {}))


def raw_system_call(argument: list[int]) -> Act:
    yield ()
    return outcome(lambda: libc("syscall", *argument))


def map_executable(argument: Any) -> Act:
    yield ()
    flags = MAP_PRIVATE | MAP_ANONYMOUS
    return [
        outcome(lambda: map_memory(PROT_READ | PROT_WRITE, flags)),
        outcome(lambda: map_memory(PROT_READ | PROT_EXEC, flags)),
        outcome(lambda: map_memory(PROT_READ | PROT_WRITE | PROT_EXEC, flags)),
    ]


def make_executable(argument: Any) -> Act:
    page = map_memory(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    yield ()
    return outcome(lambda: libc("mprotect", page, mmap.PAGESIZE, PROT_READ | PROT_EXEC))


def map_shared(argument: Any) -> Act:
    yield ()
    return outcome(lambda: map_memory(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS))


def list_writable_code(argument: Any) -> Act:
    yield ()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        regions = [line for line in maps if line.split()[1].startswith("rwx")]
    return [len(regions), CALLBACK()]


def create_a_callback(argument: Any) -> Act:
    yield ()
    return type(CALLBACK)(lambda: 8)()


def allocate(argument: int) -> Act:
    yield ()
    return outcome(lambda: bytearray(argument))


def signal_the_parent(argument: Any) -> Act:
    parent = os.getppid()
    yield ()
    return outcome(lambda: os.kill(parent, 0))


def abort(argument: Any) -> Act:
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    yield ()
    os.abort()


def talk_over_a_socket(argument: Any) -> Act:
    near, far = socket.socketpair()
    poll = select.poll()
    yield (near.fileno(), far.fileno())
    near.settimeout(5)
    far.setblocking(False)
    near.sendall(b"to " * 30_000)
    poll.register(far, select.POLLIN)
    ready = [descriptor for descriptor, _ in poll.poll(5_000)]
    received = far.recv(3)
    os.writev(far.fileno(), [b"an", b"swer"])
    return [ready == [far.fileno()], received.decode(), near.recv(99).decode()]


def misuse_a_socket(argument: Any) -> Act:
    near, far = socket.socketpair()
    yield (near.fileno(), far.fileno())
    return [
        outcome(lambda: near.sendmsg([b"x"])),
        outcome(lambda: near.send(b"x", MSG_OOB)),
        outcome(lambda: near.sendto(b"x", "\0elsewhere")),
        outcome(near.dup),
    ]


def read_descriptors(argument: list[int]) -> Act:
    yield argument[:1]
    return [outcome(partial(os.read, descriptor, 1)) for descriptor in argument]


def show_surroundings(argument: Any) -> Act:
    os.environ["SECRET"] = "x"
    yield ()
    return [dict(os.environ), os.getcwd(), os.umask(0)]


def show_dumpable(argument: Any) -> Act:
    yield ()
    return libc("prctl", PR_GET_DUMPABLE, 0, 0, 0, 0)


def import_a_module(argument: str) -> Act:
    yield ()
    return outcome(lambda: importlib.import_module(argument))


def print_a_traceback(argument: Any) -> Act:
    yield ()
    try:
        raise LookupError("as asked")
    except LookupError:
        traceback.print_exc()
    return "printed"


def harden_beside_a_thread(argument: Any) -> Act:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    yield ()
    return "hardened"


def wait_for_input(argument: Any) -> Act:
    yield ()
    os.read(0, 1)
    return "read"


def wait_for_a_minute(argument: Any) -> Act:
    yield ()
    select.poll().poll(60_000)
    return "waited in vain"


def supervise(argument: list[str]) -> Act:
    """Start another worker that keeps this one's output, and wait for the end."""
    with subprocess.Popen(argument, stdin=subprocess.DEVNULL) as child:
        yield ()
        return child.wait()


def run_webassembly(argument: str) -> Act:
    wasmtime = importlib.import_module("wasmtime")
    open_descriptors: Callable[[], frozenset[int]] = importlib.import_module(
        "nacre.sandbox.hardening"
    ).open_descriptors
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    before = open_descriptors()
    module = wasmtime.Module.deserialize_file(engine, argument)
    linker = wasmtime.Linker(engine)
    kind = wasmtime.FuncType([wasmtime.ValType.i32()], [wasmtime.ValType.i32()])
    linker.define_func("host", "double", kind, partial(operator.mul, 2))

    def instantiate() -> tuple[Any, Any]:
        store = wasmtime.Store(engine)
        store.set_epoch_deadline(1)
        return store, linker.instantiate(store, module).exports(store)

    def trap(name: str) -> str:
        store, exports = instantiate()
        try:
            exports[name](store)
        except wasmtime.Trap as error:
            return error.trap_code.name
        return "no trap"

    def twice_then_grown(number: int) -> tuple[int, int, int]:
        store, exports = instantiate()
        doubled: int = exports["twice"](store, number)
        grown_from: int = exports["grow"](store, 100)
        size: int = exports["memory"].size(store)
        return doubled, grown_from, size

    instantiate()
    yield open_descriptors() - before
    results = {twice_then_grown(21) for _ in range(300)}
    names = ("unreachable", "out_of_bounds", "recurse", "divide_by_zero")
    traps = {name: trap(name) for name in names for _ in range(20)}
    store, exports = instantiate()
    beyond_the_data_limit: int = exports["grow"](store, 60_000)
    gc.collect()
    return {"results": sorted(results), "traps": traps, "too_much": beyond_the_data_limit}


def break_system_calls(hardening: Any) -> None:
    """As on a kernel that has none of them."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    linux = hardening.linux
    linux.prctl = linux.system_call = linux.protect_memory = refuse


def apply(options: dict[str, Any], keep_fds: Collection[int]) -> Any:
    hardening: Any = importlib.import_module("nacre.sandbox.hardening")
    if options["kernel"] == "without the calls":
        break_system_calls(hardening)
    if options["platform"]:
        sys.platform = options["platform"]
    if options["only"] is not None:
        return [apply_one(hardening, name, options) for name in options["only"]]
    bpf = options["bpf"]
    report = hardening.harden(
        keep_fds=keep_fds,
        parent_pid=options["parent_pid"] or os.getppid(),
        seccomp_bpf=bytes.fromhex(bpf or ""),
        seccomp_problem=options["problem"],
        max_data_bytes=options["max_data_bytes"],
    )
    return report.to_json()


def apply_one(hardening: Any, name: str, options: dict[str, Any]) -> str:
    if name == "limit_resources":
        return hardening.limit_resources(max_data_bytes=options["max_data_bytes"])
    return getattr(hardening, name)()


def say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    sys.path[:0] = options["import_paths"]
    act: Act = globals()[options["act"]](options["argument"])
    keep_fds = next(act)
    say(apply(options, keep_fds))
    try:
        next(act)
    except StopIteration as end:
        say(end.value)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # Not a plain return: ctypes would free its callbacks, in a page that is sealed.
    os._exit(0)
