"""Standard output and stop signals: who gets a signal that comes in the middle of a write."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from nacre.cli.exit_status import ExitStatus
from nacre.cli.terminal import STOP_SIGNALS, Printer


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
        for number in STOP_SIGNALS
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_beside_a_write_that_was_taken_goes_to_its_handler_and_no_text_is_lost(
    number: signal.Signals, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    stream = _SignalledPipe(writing, number)
    monkeypatch.setattr(sys, "stdout", stream)
    printer = Printer()
    printer.write("one\n")
    printer.write("two\n")
    assert printer.problem is None
    assert received == [number, number]
    assert os.read(reading, 100) == b"one\ntwo\n"
    os.close(reading)
    stream.detach().close()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_breaks_off_a_write_that_nobody_takes(
    number: signal.Signals, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 65536)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    stream = _SignalledPipe(writing, number)
    monkeypatch.setattr(sys, "stdout", stream)
    printer = Printer()
    printer.write("")
    assert printer.problem == ExitStatus(128 + number)
    assert received == []
    os.close(reading)
    stream.detach().close()
