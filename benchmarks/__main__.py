"""`python -m benchmarks`: runs the benchmarks, prints a table and writes JSON."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.one import BENCHMARKS
from benchmarks.report import Figure, table, to_json


def main() -> int:
    options = _options()
    names: list[str] = options.only or list(BENCHMARKS)
    figures: list[Figure] = []
    broken: list[str] = []
    for name in names:
        found = _run(name, is_quick=options.quick)
        figures += found
        if not found:
            broken.append(name)
    # If JSON goes to standard output, nothing else does.
    print(table(figures), file=sys.stderr if options.json == "-" else sys.stdout)
    found_json = to_json(figures, is_quick=options.quick)
    if options.json in (None, "-"):
        print(found_json)
    else:
        Path(options.json).write_text(found_json + "\n", encoding="utf-8")
    if broken:
        print(f"error: these benchmarks broke: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the JSON to FILE; - for stdout alone")
    parser.add_argument("--only", metavar="NAME,...", type=_names, help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="measure less, to try things out")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no benchmark is called {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}"
        )
    return names


def _run(name: str, *, is_quick: bool) -> list[Figure]:
    """The figures of one benchmark, measured in a new process."""
    print(f"{name} ...", file=sys.stderr)
    started = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.one", name, *(["--quick"] if is_quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    return [Figure(**fields) for fields in json.loads(done.stdout)] if not done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
