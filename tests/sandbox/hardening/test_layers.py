"""Each measure alone: it must hold even where the others are missing."""

import sys

import pytest

from tests.sandbox.hardening.runs import MAX_DATA_BYTES, command, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are those of Linux")

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
    (["leave_surroundings"], "show_surroundings", None, [{}, "/", 0o077]),
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
