"""Each hardening measure alone, and Landlock on older kernels."""

import errno
import os
import sys

import pytest

from nacre.sandbox.hardening import attempt, linux
from nacre.sandbox.hardening.measures import restrict_with_landlock
from tests.sandbox.hardening.runs import MAX_DATA_BYTES, command, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are those of Linux")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_without_landlock_is_reported_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(linux, "require_linux", lambda: None)
    monkeypatch.setattr(linux, "system_call", refuse)
    measure = attempt("landlock", restrict_with_landlock)
    assert (measure.applied, "not available in this kernel" in measure.detail) == (False, True)


@pytest.mark.parametrize(
    ("version", "words", "refused"),
    [
        (1, 1, "all paths"),
        (4, 2, "all paths, TCP bind and connect"),
        (99, 3, "all paths, TCP bind and connect, abstract sockets and signals outside"),
    ],
)
def test_each_version_is_asked_for_what_it_knows(
    monkeypatch: pytest.MonkeyPatch, version: int, words: int, refused: str
) -> None:
    sizes: list[int] = []

    def answer(number: int, *arguments: int) -> int:
        match arguments:
            case (0, 0, 1):
                return version
            case (_, size, 0):
                sizes.append(size)
                return os.open(os.devnull, os.O_RDONLY)
            case _:
                return 0

    monkeypatch.setattr(linux, "require_linux", lambda: None)
    monkeypatch.setattr(linux, "system_call", answer)
    detail = restrict_with_landlock()
    assert (sizes, detail) == ([8 * words], f"version {version}: refuses {refused}")


LANDLOCK = ["forbid_new_privileges", "restrict_with_landlock"]

ALONE: list[tuple[list[str], str, object, object]] = [
    (LANDLOCK, "open_for_reading", "/etc/passwd", "EACCES"),
    (LANDLOCK, "create_a_file", "/tmp", "EACCES"),
    (LANDLOCK, "connect_a_socket", None, "EACCES"),
    (LANDLOCK, "signal_the_parent", None, "EPERM"),
    (["limit_resources"], "write_to_an_open_file", None, "EFBIG"),
    (["limit_resources"], "create_a_socket", 1, "EMFILE"),
    (["limit_resources"], "allocate", MAX_DATA_BYTES, "MemoryError"),
    (["forbid_new_executable_memory"], "make_executable", None, "EACCES"),
    (["forbid_dumping"], "show_dumpable", None, 0),
    (["seal_executable_memory"], "list_writable_code", None, [0, 7]),
    (["clear_surroundings"], "show_surroundings", None, [{}, "/", 0o077]),
]


@pytest.mark.parametrize(("only", "act", "argument", "result"), ALONE)
def test_a_measure_holds_alone(only: list[str], act: str, argument: object, result: object) -> None:
    assert run(command(act, argument, only=only)).result == result


@pytest.mark.parametrize(
    ("act", "argument", "result"),
    [
        ("signal_the_parent", None, "allowed"),
        ("write_to_an_open_file", None, "allowed"),
        ("show_dumpable", None, 1),
        ("list_writable_code", None, [1, 7]),
    ],
)
def test_the_same_act_ends_otherwise_without_the_measure(
    act: str, argument: object, result: object
) -> None:
    assert run(command(act, argument, only=[])).result == result
