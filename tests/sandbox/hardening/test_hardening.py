"""A hardened worker: refused and allowed actions, and its report."""

import errno
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wasmtime

from nacre.sandbox.hardening import PARENT_GONE_EXIT_CODE, HardeningReport, Measure, attempt, linux
from nacre.sandbox.hardening.linux import NotApplied
from nacre.sandbox.hardening.measures import restrict_with_landlock
from tests.sandbox.hardening.runs import (
    MAX_DATA_BYTES,
    SECONDS,
    bpf,
    command,
    run,
    system_call_number,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are those of Linux")
needs_seccomp = pytest.mark.skipif(bpf() is None, reason="no seccomp filter can be compiled here")

MEASURES = [
    "parent_death_signal",
    "surroundings_cleared",
    "descriptors_closed",
    "single_thread",
    "executable_memory_sealed",
    "no_new_executable_memory",
    "capabilities_dropped",
    "no_new_privileges",
    "not_dumpable",
    "landlock",
    "resource_limits",
    "seccomp",
]

FORBIDDEN: list[tuple[str, object, object]] = [
    ("open_for_reading", "/etc/passwd", "EPERM"),
    ("create_a_file", "/tmp", "EPERM"),
    ("look_at_a_path", "/etc/passwd", "EPERM"),
    ("create_a_socket", 1, "EPERM"),
    ("create_a_socket", 2, "EPERM"),
    ("connect_a_socket", None, "EPERM"),
    ("fork", None, "EPERM"),
    ("spawn", None, "EPERM"),
    ("start_a_thread", None, "RuntimeError"),
    ("make_executable", None, "EPERM"),
    ("map_shared", None, "EPERM"),
    ("signal_the_parent", None, "EPERM"),
    ("allocate", MAX_DATA_BYTES, "MemoryError"),
    ("import_a_module", "wave", "ModuleNotFoundError"),
]

FATAL = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "bpf",
    "mount",
    "kexec_load",
    "io_uring_setup",
    "userfaultfd",
    "perf_event_open",
    "unshare",
    "setns",
]

WAT = """
(module
  (import "host" "double" (func $double (param i32) (result i32)))
  (memory (export "memory") 1 65536)
  (data (i32.const 0) "an image that is mapped copy-on-write")
  (func (export "twice") (param i32) (result i32) (call $double (local.get 0)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "unreachable") unreachable)
  (func (export "out_of_bounds") (drop (i32.load (i32.const -4))))
  (func $recurse (export "recurse") (call $recurse))
  (func (export "divide_by_zero") (drop (i32.div_s (i32.const 1) (i32.const 0)))))
"""


@pytest.fixture
def compiled_module(tmp_path: Path) -> Path:
    config = wasmtime.Config()
    config.epoch_interruption = True
    path = tmp_path / "module.cwasm"
    path.write_bytes(wasmtime.Module(wasmtime.Engine(config), WAT).serialize())
    return path


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb"):
        yield reading, writing


@pytest.fixture
def waiting_worker() -> Iterator[int]:
    """The process id of a hardened worker that waits."""
    with subprocess.Popen(
        command("wait_for_input"), env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline())
        yield worker.pid
        worker.stdin.close()


@pytest.mark.parametrize(("act", "argument", "refusal"), FORBIDDEN)
@needs_seccomp
def test_a_hardened_worker_is_refused(act: str, argument: object, refusal: object) -> None:
    assert run(command(act, argument)).result == refusal


@pytest.mark.parametrize(("act", "argument", "refusal"), FORBIDDEN)
def test_the_same_act_succeeds_without_hardening(
    act: str, argument: object, refusal: object
) -> None:
    assert run(command(act, argument, only=[])).result == "allowed"


@pytest.mark.parametrize("name", FATAL)
@needs_seccomp
def test_a_hostile_system_call_ends_the_worker(name: str) -> None:
    arguments = [system_call_number(name), 0, 0, 0, 0]
    assert run(command("raw_system_call", arguments)).returncode == -signal.SIGSYS


@needs_seccomp
def test_executing_a_program_ends_the_worker() -> None:
    assert run(command("execute")).returncode == -signal.SIGSYS


@needs_seccomp
def test_memory_is_mapped_writable_and_never_executable() -> None:
    assert run(command("map_executable")).result == ["allowed", "EPERM", "EPERM"]


@needs_seccomp
def test_another_thread_group_cannot_be_signalled_by_tgkill() -> None:
    arguments = [system_call_number("tgkill"), os.getpid(), os.getpid(), 0]
    assert run(command("raw_system_call", arguments)).result == "EPERM"


@needs_seccomp
def test_abort_still_ends_the_worker_with_its_own_signal() -> None:
    assert run(command("abort")).returncode == -signal.SIGABRT


@needs_seccomp
def test_webassembly_still_runs_grows_and_traps(compiled_module: Path) -> None:
    assert run(command("run_webassembly", str(compiled_module))).result == {
        "results": [[42, 1, 101]],
        "traps": {
            "unreachable": "UNREACHABLE",
            "out_of_bounds": "MEMORY_OUT_OF_BOUNDS",
            "recurse": "STACK_OVERFLOW",
            "divide_by_zero": "INTEGER_DIVISION_BY_ZERO",
        },
        "too_much": -1,
    }


@needs_seccomp
def test_an_open_socket_still_works_with_timeouts_and_poll() -> None:
    assert run(command("talk_over_a_socket")).result == [True, "to ", "answer"]


@needs_seccomp
def test_a_socket_passes_no_descriptors_and_reaches_nobody_but_its_peer() -> None:
    assert run(command("misuse_a_socket")).result == ["EPERM"] * 4


@needs_seccomp
def test_a_traceback_still_reaches_standard_error() -> None:
    printed = run(command("print_a_traceback"))
    assert (printed.result, "LookupError: as asked" in printed.stderr) == ("printed", True)


def test_a_callback_cannot_be_created_after_hardening() -> None:
    assert run(command("create_a_callback")).returncode == -signal.SIGSEGV


def test_descriptors_that_were_not_named_are_closed(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"xy")
    duplicate = os.dup(reading)
    try:
        done = run(command("read_descriptors", [reading, duplicate]), pass_fds=[reading, duplicate])
    finally:
        os.close(duplicate)
    assert done.result == ["allowed", "EBADF"]


def test_every_measure_that_this_kernel_has_is_applied() -> None:
    report = run(command("nothing")).report
    lacking = [
        measure
        for measure in report.missing
        if measure.available and (measure.name, bpf()) != ("seccomp", None)
    ]
    assert ([measure.name for measure in report.measures], lacking) == (MEASURES, [])


def test_the_kernel_confirms_what_the_report_says(waiting_worker: int) -> None:
    lines = Path(f"/proc/{waiting_worker}/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    expected = {
        "NoNewPrivs": "1",
        "Seccomp": "0" if bpf() is None else "2",
        "CapEff": "0" * 16,
        "CapPrm": "0" * 16,
        "Threads": "1",
        "Umask": "0077",
    }
    assert {name: status[name] for name in expected} == expected


def test_the_kernel_confirms_the_limits(waiting_worker: int) -> None:
    _, *lines = Path(f"/proc/{waiting_worker}/limits").read_text(encoding="utf-8").splitlines()
    limits = {line[:26].strip(): line[26:68].split() for line in lines}
    expected = {
        "Max core file size": "0",
        "Max file size": "0",
        "Max processes": "0",
        "Max locked memory": "0",
        "Max msgqueue size": "0",
        "Max open files": "3",
        "Max data size": str(MAX_DATA_BYTES),
        "Max stack size": str(64 * 1024 * 1024),
    }
    assert {name: limits[name] for name in expected} == {
        name: [limit, limit] for name, limit in expected.items()
    }


def test_without_a_filter_the_report_says_why_and_the_rest_holds() -> None:
    report = run(command("nothing", seccomp=False)).report
    seccomp = next(measure for measure in report.measures if measure.name == "seccomp")
    assert (seccomp.applied, seccomp.detail) == (False, "the test asked for none")
    assert [measure.name for measure in report.unmet(None)] == ["seccomp"]
    assert {m.name for m in report.missing} <= {"seccomp", "landlock", "no_new_executable_memory"}


def test_without_a_filter_files_and_sockets_are_still_out_of_reach() -> None:
    opened = run(command("open_for_reading", "/etc/passwd", seccomp=False)).result
    connected = run(command("create_a_socket", 2, seccomp=False)).result
    assert (opened, connected) == ("EMFILE", "EMFILE")


@needs_seccomp
def test_on_a_kernel_without_the_calls_nothing_raises_and_each_is_reported() -> None:
    report = run(command("nothing", kernel="without the calls")).report
    assert {measure.name for measure in report.missing} == {
        "parent_death_signal",
        "executable_memory_sealed",
        "no_new_executable_memory",
        "capabilities_dropped",
        "no_new_privileges",
        "not_dumpable",
        "landlock",
        "seccomp",
    }
    assert all(os.strerror(38) in measure.detail for measure in report.missing)
    # Not required where the kernel lacks them, unless the options name them.
    assert report.unmet(None) == ()
    assert [measure.name for measure in report.unmet(["seccomp"])] == ["seccomp"]


def test_on_another_system_only_what_every_posix_has_is_applied() -> None:
    done = run(command("nothing", platform="darwin"))
    assert {measure.detail for measure in done.report.missing} == {"not available on darwin"}
    assert [measure.name for measure in done.report.measures if measure.applied] == [
        "surroundings_cleared",
        "descriptors_closed",
        "resource_limits",
    ]


def test_a_second_thread_is_reported() -> None:
    report = run(command("harden_beside_a_thread", seccomp=False)).report
    assert "single_thread" in {measure.name for measure in report.missing}


def test_a_worker_whose_parent_is_gone_exits_before_it_does_anything() -> None:
    orphan = run(command("nothing", parent_pid=os.getppid()))
    assert (orphan.returncode, orphan.lines) == (PARENT_GONE_EXIT_CODE, ())


def test_a_worker_dies_with_its_supervisor() -> None:
    supervise = command("supervise", command("wait_for_a_minute"), only=[])
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb") as output:
        with subprocess.Popen(supervise, env={}, stdout=output) as supervisor:
            output.close()
            said = _read_lines(reading, count=2)
            supervisor.kill()
        # The worker holds the last writing end: its death is the end of the pipe.
        assert (len(said), _read_lines(reading, count=1)) == (2, [])


def _read_lines(descriptor: int, *, count: int) -> list[bytes]:
    """Fewer lines than asked for mean that the pipe has ended."""
    content = b""
    while content.count(b"\n") < count:
        readable, _, _ = select.select([descriptor], [], [], SECONDS)
        assert readable, "nothing was written, and nobody closed the pipe"
        if not (chunk := os.read(descriptor, 4096)):
            break
        content += chunk
    return content.splitlines()


def test_a_report_survives_json() -> None:
    report = HardeningReport(
        measures=(
            Measure(name="seccomp", applied=True, detail="186 instructions"),
            Measure(name="landlock", applied=False, available=False, detail="no such call"),
        )
    )
    assert HardeningReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"measures": "all"},
        {"measures": ["seccomp"]},
        {"measures": [{"name": "seccomp", "applied": 1, "available": True, "detail": ""}]},
        {"measures": [{"name": "seccomp", "applied": True, "available": True}]},
    ],
)
def test_what_is_not_a_report_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a hardening report needs"):
        HardeningReport.from_json(value)


def test_a_measure_that_is_not_reported_counts_as_missing() -> None:
    assert [it.name for it in HardeningReport(measures=()).unmet(None)] == ["seccomp", "landlock"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EPERM, errno.EINVAL])
def test_an_error_of_a_kernel_that_has_landlock_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(linux, "system_call", refuse)
    assert attempt("landlock", restrict_with_landlock).available


def test_a_step_that_fails_becomes_a_measure_that_is_missing() -> None:
    def refuse() -> str:
        raise NotApplied("too old")

    def break_down() -> str:
        raise ZeroDivisionError("by accident")

    report = HardeningReport(
        measures=(
            attempt("good", lambda: "done"),
            attempt("refused", refuse),
            attempt("broken", break_down),
        )
    )
    assert report.measures[0] == Measure(name="good", applied=True, detail="done")
    assert report.missing == (
        Measure(name="refused", applied=False, detail="too old"),
        Measure(name="broken", applied=False, detail="ZeroDivisionError: by accident"),
    )
