"""Runs a command in a terminal of its own and draws what it shows, as docs/images have it:

python tooling/terminal_picture.py docs/images/nacre_run.svg nacre run "..."
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 104, 50


def shown_by(command: list[str]) -> str:
    """Everything that the command writes to its terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), COLORTERM="truecolor")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written = bytearray()
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:
            # How Linux says that the other end is closed.
            part = b""
        if not part:
            os.waitpid(child, 0)
            return written.decode(errors="replace")
        written += part


def lines_left(text: str) -> str:
    """What is left standing: a carriage return starts the line anew, ESC[K empties it."""
    kept: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        last = line.rpartition("\r")[2]
        kept.append(last.rpartition("\x1b[K")[2] if "\x1b[K" in last else last)
    return "\n".join(kept).strip("\n")


def main(target: Path, command: list[str]) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ nacre {' '.join(_quoted(it) for it in command[1:])}\n", style="bold"))
    console.print(Text.from_ansi(lines_left(shown_by(command))))
    picture = console.export_svg(title="nacre")
    # The reader's own font: a picture in a repository fetches nothing.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    target.write_text(picture.replace("Fira Code,", ""), encoding="utf-8")


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
