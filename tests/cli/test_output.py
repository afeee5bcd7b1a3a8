"""Standard output, stop signals during a write, and amounts."""

import io
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

import pytest

from nacre.cli.output import (
    ExitStatus,
    Printer,
    duration_text,
    size_text,
    time_text,
    write_table,
)
from nacre.stop_signals import stop_signals


class _SignalledPipe(io.TextIOWrapper):
    """A pipe whose reader sends a signal as soon as it has a text, or as it lets us wait."""

    def __init__(self, descriptor: int, signal_number: int) -> None:
        super().__init__(os.fdopen(descriptor, "wb"), write_through=True)
        self._signal_number = signal_number

    def write(self, text: str, /) -> int:
        written = super().write(text)
        os.kill(os.getpid(), self._signal_number)
        return written


@pytest.fixture
def received() -> Iterator[list[int]]:
    numbers: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _frame: numbers.append(got))
        for number in stop_signals()
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def signalled_pipe(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> Generator[int]:
    """Standard output is a pipe of that kind; the reader's end of it."""
    reading, writing = os.pipe()
    if is_full:
        fill(writing)
    stream = _SignalledPipe(writing, number)
    monkeypatch.setattr(sys, "stdout", stream)
    try:
        yield reading
    finally:
        os.close(reading)
        stream.detach().close()


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    for size in (65536, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, b"x" * size)


@pytest.mark.parametrize("number", stop_signals())
def test_a_signal_beside_a_write_that_was_taken_goes_to_its_handler_and_no_text_is_lost(
    number: signal.Signals, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with signalled_pipe(number, monkeypatch, is_full=False) as reading:
        printer = Printer()
        printer.write("one\n")
        printer.write("two\n")
        assert printer.problem is None
        assert received == [number, number]
        assert os.read(reading, 100) == b"one\ntwo\n"


@pytest.mark.parametrize("number", stop_signals())
def test_a_signal_breaks_off_a_write_that_nobody_takes(
    number: signal.Signals, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with signalled_pipe(number, monkeypatch, is_full=True):
        printer = Printer()
        printer.write("")
        assert printer.problem == ExitStatus(128 + number)
        assert received == []


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0 ms"),
        (9.96, "10.0 ms"),
        (12.3, "12 ms"),
        (1500, "1.5 s"),
        (61_000, "1 min 1 s"),
        (3_720_000, "1 h 2 min"),
    ],
)
def test_durations(milliseconds: float, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3e9, "3.0 GB")],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


def test_a_time_that_no_calendar_has_is_no_trouble() -> None:
    assert time_text(1e30) == f"{1e30:.0f} s after 1970"


def test_a_narrow_terminal_does_not_break_ids(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    printer = Printer()
    printer.is_terminal = True
    session = "session_3d8177eedfe5966a250689cc"
    write_table(printer, ("#", "session", "title"), [("1", session, "one two " * 8)], right=("#",))
    lines = capsys.readouterr().out.splitlines()
    assert session in lines[1]
    # The other columns are wrapped.
    assert len(lines) > 3
