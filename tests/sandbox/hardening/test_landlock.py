"""Landlock on kernels that have little of it, or none."""

import errno
import os

import pytest

from nacre.sandbox.hardening import attempt, linux
from nacre.sandbox.hardening.measures import restrict_with_landlock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="landlock is of Linux")


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
