"""A driver as a process: requests, CPU time and memory of the peer with all its processes."""

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psutil

from benchmarks.measurement import cpu_seconds, elapsed_ms
from benchmarks.peers.registry import Peer, PeerUnavailableError

_WORK_SECONDS: Final = 180
_MAX_SHOWN: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The wall times of a work, and the CPU time of each run, in milliseconds."""

    walls: Sequence[float]
    cpu_ms: float


class WorkSkippedError(Exception):
    """The peer cannot do this work."""


class DriverProcess:
    """A running driver. Close it."""

    def __init__(self, peer: Peer, *, tools: int = 2, is_cold: bool = False) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = ["--tools", str(tools), *(["--cold"] if is_cold else [])]
        environment = {
            **os.environ,
            "PEER_DIRECTORY": str(peer.directory),
            "NACRE_SEMANTIC_SEARCH": "off",
        }
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [*peer.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._receive()
        except PeerUnavailableError:
            self.close()
            raise
        self.start_ms = elapsed_ms(started)

    def run(self, work: str, times: int) -> Sample:
        """Raises WorkSkippedError, and PeerUnavailableError if the work fails."""
        assert self._process.stdin is not None
        before = self._cpu_seconds()
        self._process.stdin.write(json.dumps({"work": work, "times": times}) + "\n")
        self._process.stdin.flush()
        answer = self._receive()
        cpu = self._cpu_seconds() - before
        if "skip" in answer:
            raise WorkSkippedError(answer["skip"])
        if "error" in answer:
            raise PeerUnavailableError(answer["error"][:_MAX_SHOWN])
        return Sample(walls=answer["walls"], cpu_ms=cpu * 1000 / times)

    def memory_mb(self) -> float:
        """The memory of all processes; shared pages count once."""
        return sum(each.memory_full_info().pss for each in self._tree()) / 1e6

    def close(self) -> None:
        for process in reversed(self._tree()):
            with suppress(psutil.Error):
                process.kill()
        self._process.wait()
        self._log.close()

    def _tree(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_seconds(self) -> float:
        tree = self._tree()
        ended = sum(it.cpu_times().children_user + it.cpu_times().children_system for it in tree)
        return ended + sum(cpu_seconds(process.pid) for process in tree)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A peer may write lines of its own.
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put("")

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=_WORK_SECONDS)
        except queue.Empty:
            raise PeerUnavailableError(f"did not answer within {_WORK_SECONDS} s") from None
        if not line:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip().splitlines()
            raise PeerUnavailableError(f"ended: {said[-1][:_MAX_SHOWN] if said else 'no message'}")
        return json.loads(line)
