"""What a process imports until the first result of a program."""

import subprocess
import sys

# Each is large, or belongs to a feature that a single program does not use.
FORBIDDEN = {
    "fastapi",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "nacre.gateway",
    "nacre.storage.records",
    "nacre.tools.catalog_search",
    "nacre.tools.declarations",
    "nacre.tools.function_tool",
    "numpy",
    "openai",
    "opentelemetry",
    "pydantic",
    "pydantic_ai",
    "rich",
    "shutil",
    "snowballstemmer",
    "sqlalchemy",
    "sqlite3",
    "starlette",
    "tempfile",
    "zipfile",
}

CODE_MODE = """
import asyncio, sys
from nacre import CodeMode
async def main():
    async with CodeMode() as code_mode:
        result = await code_mode.exec("return 1 + 1")
        workers = len(code_mode.runtime.sandbox.workers)
    assert result.value == 2, result
    print(workers, *sys.modules)
asyncio.run(main())
"""
COMMAND = """
import atexit, gc, sys, threading
from nacre.cli.main import main
# It ends when Python begins to exit.
threading.Thread(target=threading.main_thread().join).start()
sys.argv = ["nacre", "exec", "-e", "return 1 + 1"]
atexit.register(lambda: print(gc.get_freeze_count(), *sys.modules))
main()
print("the process did not end")
"""

WORKER = """
import sys
import nacre.sandbox.worker.main
from nacre.sandbox.worker.cell_worker import zstandard
packed = zstandard.ZstdCompressor().compress(b"text")
assert zstandard.ZstdDecompressor().decompress(packed) == b"text"
print(*sys.modules)
"""
PATTERNS = """
import re, sys
compiled = []
compile = re.compile
re.compile = lambda text, flags=0: (compiled.append(str(text)), compile(text, flags))[1]
import nacre.code_mode
from nacre.telemetry import is_secret_key
at_import = [text for text in compiled if "passphrase" in text]
assert is_secret_key("passphrase") and not is_secret_key("title")
assert is_secret_key("passphrase")
print(len(at_import), len([text for text in compiled if "passphrase" in text]))
"""

TERMS = """
import sys
from nacre.tools.catalog_search.terms import terms_of
print(*terms_of("running translations"))
print(*sys.modules)
"""


def run(program: str) -> list[str]:
    # Without `site`, whose files may import anything.
    code = f"import sys\nsys.path[:] = {sys.path!r}\n{program}"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_code_mode_imports_only_what_a_program_needs() -> None:
    workers, *modules = run(CODE_MODE)
    # Only workers call the C library.
    assert not (FORBIDDEN | {"ctypes"}) & set(modules)
    assert "nacre.code_mode.runtime" in modules
    # The rest is started when programs run at the same time.
    assert workers == "1"


def test_the_command_imports_only_what_a_program_needs_and_runs_exit_functions() -> None:
    value, frozen, *modules = run(COMMAND)
    assert value == "2"
    # No garbage is searched in what is imported.
    assert int(frozen) > len(modules)
    # Without options, it needs no option parser.
    assert not (FORBIDDEN | {"typer"}) & set(modules)
    assert "nacre.code_mode.runtime" in modules


def test_a_pattern_is_compiled_once_at_its_first_use() -> None:
    assert run(PATTERNS) == ["0", "1"]


def test_the_first_search_imports_the_stemmer_of_one_language() -> None:
    run_stem, translate_stem, *modules = run(TERMS)
    assert (run_stem, translate_stem) == ("run", "transl")
    stemmers = {name.rpartition(".")[2] for name in modules if name.endswith("_stemmer")}
    assert stemmers == {"english_stemmer"}


def test_a_worker_imports_only_what_it_needs() -> None:
    modules = set(run(WORKER))
    assert not modules & (FORBIDDEN | {"dataclasses", "hashlib", "platform", "signal", "socket"})
    assert "nacre.sandbox.worker.vm" in modules
