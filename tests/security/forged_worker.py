"""A worker that hostile code has taken over: it says what the test tells it to say."""

import json
import socket
import subprocess
import sys
from collections.abc import Sequence

import anyio.to_thread
import pytest

from nacre.config import PROTECTIONS
from nacre.sandbox.hardening import HardeningReport, Measure
from nacre.sandbox.pool import Launcher
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Event, encode_frame

# Answers each command with the next of its lines, and all further ones with the last.
_SCRIPT = """
import json, socket, struct, sys
connection = socket.socket(fileno=int(sys.argv[1]))
ready, started, *answers = map(bytes.fromhex, json.loads(sys.stdin.read()))
connection.sendall(ready)
header = struct.Struct("<BII")
received = bytearray()
def take(size):
    while len(received) < size:
        chunk = connection.recv(1 << 18)
        if not chunk:
            sys.exit()
        received.extend(chunk)
    data = bytes(received[:size])
    del received[:size]
    return data
while True:
    kind, fields, tail = header.unpack(take(header.size))
    take(fields + tail)
    # START and RESTORE are acknowledged first, as a sound worker does.
    if kind in (1, 2):
        connection.sendall(started)
    connection.sendall(answers.pop(0) if len(answers) > 1 else answers[0])
"""


def forge_first_worker(monkeypatch: pytest.MonkeyPatch, answers: Sequence[bytes]) -> None:
    """The first worker of the next sandbox is a forged one; those after it are sound."""
    start_process = Launcher.start_process
    started: list[WorkerProcess] = []

    async def start_forged_first(launcher: Launcher) -> WorkerProcess:
        if started:
            return await start_process(launcher)
        started.append(await anyio.to_thread.run_sync(_start, answers))
        return started[0]

    monkeypatch.setattr(Launcher, "start_process", start_forged_first)


def _start(answers: Sequence[bytes]) -> WorkerProcess:
    measures = tuple(Measure(name=name, applied=True, detail="") for name in PROTECTIONS)
    report = HardeningReport(measures=measures).to_json()
    ready = encode_frame(Event.READY, {"hardening": report})
    started = encode_frame(Event.STARTED, {})
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
    assert process.stdin is not None
    with process.stdin as script:
        script.write(json.dumps([data.hex() for data in (ready, started, *answers)]).encode())
    ours.setblocking(False)
    return WorkerProcess(process, ours)
