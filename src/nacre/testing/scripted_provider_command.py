"""`python -m nacre.testing.scripted_provider`: a script file, served until it is ended."""

from __future__ import annotations

import argparse
import re
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
    from collections.abc import Callable, Sequence

    from nacre.testing.recorded_request import RecordedRequest


def run_from_command_line(arguments: Sequence[str] | None = None) -> None:
    """Print the address as the first line, then serve until SIGINT or SIGTERM."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        script = script_from_json(decode_json(given.script.read_bytes()))
    except (OSError, NotJsonError, ValueError) as error:
        parser.error(f"{given.script}: {error}")
    if isinstance(script, dict) and given.marker is None:
        parser.error(f"{given.script} has conversations: give a `--marker` that tells them apart")
    anyio.run(_serve, ScriptedProvider(script, script_for=given.marker, port=given.port))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nacre.testing.scripted_provider", description=__doc__
    )
    parser.add_argument(
        "--script",
        type=Path,
        required=True,
        help="a JSON list of turns, or an object with such a list for each conversation;"
        " see docs/testing.md",
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any that is free")
    parser.add_argument(
        "--marker",
        type=_marker,
        help="a regular expression; what it finds in the prompts names their conversation, and each"
        " conversation plays the script, or its own, from the beginning",
    )
    return parser


def _marker(pattern: str) -> Callable[[RecordedRequest], str]:
    try:
        return by_marker(pattern)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{pattern!r} is no regular expression: {error}"
        ) from error


async def _serve(scripted: ScriptedProvider) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with scripted as provider:
            sys.stdout.write(f"{provider.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                break
