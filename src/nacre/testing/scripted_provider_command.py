"""`python -m nacre.testing.scripted_provider`: a script file, served until it is ended."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from nacre.json_types import NotJsonError, decode_json
from nacre.testing.script import by_marker
from nacre.testing.script_file import script_from_json
from nacre.testing.scripted_provider import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.testing.script import Turn


def run_from_command_line(arguments: Sequence[str] | None = None) -> None:
    """Print the address as the first line, then serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m nacre.testing.scripted_provider", description=__doc__
    )
    parser.add_argument(
        "--script", type=Path, required=True, help="a JSON list of turns; see docs/testing.md"
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any that is free")
    parser.add_argument(
        "--marker",
        default="",
        help="a regular expression; every conversation in whose prompts it finds another text plays"
        " the script from its beginning",
    )
    given = parser.parse_args(arguments)
    try:
        script = script_from_json(decode_json(given.script.read_bytes()))
    except (OSError, NotJsonError, ValueError) as error:
        parser.error(f"{given.script}: {error}")
    anyio.run(_serve, script, given.marker, given.port)


async def _serve(script: list[Turn], marker: str, port: int) -> None:
    script_for = by_marker(marker) if marker else None
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with ScriptedProvider(script, script_for=script_for, port=port) as provider:
            sys.stdout.write(f"{provider.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                break
