"""Columns as people count them: the engine counts bytes of UTF-8, from 1."""


class ByteColumns:
    """The lines of a program, for positions that the engine reports in it."""

    def __init__(self, code: bytes) -> None:
        # A program without other characters needs no lines: its bytes are its columns.
        self._lines = None if code.isascii() else code.split(b"\n")

    def position(self, line: int, column: int) -> tuple[int, int]:
        """The same position with the column in characters."""
        if self._lines is None or not 0 < line <= len(self._lines):
            return line, column
        before = self._lines[line - 1][: max(column - 1, 0)]
        return line, len(before.decode(errors="ignore")) + 1
