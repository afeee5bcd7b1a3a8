"""Running third-party MCP clients."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Longer than the slowest of them takes on a busy machine.
PATIENCE_SECONDS = 180

# The package needs Node 22 for a command of its own that no test uses.
_GLOB_IMPORT = "globSync as o,"
_GLOB_SHIM = 'import*as __fs from"fs";const o=__fs.globSync;'


def node_modules(package: str) -> Path:
    """The folder of modules that has this package."""
    modules = ROOT / "tooling" / "peers" / "node_modules"
    assert (modules / package).exists(), f"{package} is missing; `make test` installs it"
    return modules


def run_inspector(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The MCP Inspector's command line."""
    package = "@modelcontextprotocol/inspector"
    script = node_modules(package) / package / "cli" / "build" / "cli.js"
    return _run("node", str(script), "--cli", *arguments)


def run_conformance(work_directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The official conformance tests, in a copy that runs on Node 20 as well."""
    package = "@modelcontextprotocol/conformance"
    modules = node_modules(package)
    code = (modules / package / "dist" / "index.js").read_text(encoding="utf-8")
    shebang, _, rest = code.partition("\n")
    if _GLOB_IMPORT in rest:
        rest = _GLOB_SHIM + rest.replace(_GLOB_IMPORT, "", 1)
    copy = work_directory / "index.mjs"
    copy.write_text(f"{shebang}\n{rest}", encoding="utf-8")
    (work_directory / "node_modules").symlink_to(modules)
    return _run("node", str(copy), *arguments)


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, "-c", code, *arguments)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
