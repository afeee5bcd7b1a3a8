"""The command of Codex's native hooks: passes a payload to Nacre, and prints the answer.

Codex starts it for every call of a native tool, so it imports nothing but built-in modules and runs
with `python -I -S`. It fails closed: whatever goes wrong, it prints the answer that it was given.

    relay_command.py SOCKET PID ADDRESS TIMEOUT FALLBACK

PID is the process that has to listen at SOCKET: commands of the model may be able to put another
socket into its place.

A frame is its length in eight hexadecimal digits, and that many bytes. The request is ADDRESS, a
line feed and the payload. Line feeds before the response mean that Nacre is still working on it.
Codex ends only the shell that runs this command, so the command then looks for its shell.
"""

import sys
from posix import getppid, read, write

_MAX_BYTES = 4 << 20
_PIECE_BYTES = 1 << 16


def _read_payload() -> bytes:
    # All of it, even if it is too large: Codex ignores a hook that does not read its input.
    pieces: list[bytes] = []
    total = 0
    while piece := read(0, _PIECE_BYTES):
        total += len(piece)
        if total <= _MAX_BYTES:
            pieces.append(piece)
    if total > _MAX_BYTES:
        raise ValueError(total)
    return b"".join(pieces)


def _ask(path: str, listener: int, request: bytes, timeout_seconds: float) -> bytes:
    # Not `socket`, whose imports take longer than everything else here.
    import _socket

    # Before Nacre knows of the call, because the shell may end at any time after that.
    shell = getppid()
    connection = _socket.socket(_socket.AF_UNIX)
    connection.settimeout(timeout_seconds)
    connection.connect(path)
    if sys.platform == "linux":
        peer = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        if int.from_bytes(peer[:4], sys.byteorder) != listener:
            raise PermissionError(path)
    connection.sendall(b"%08x" % len(request) + request)
    received = b""
    while True:
        piece = connection.recv(_PIECE_BYTES)
        if not piece or getppid() != shell:
            raise EOFError
        received = (received + piece).lstrip(b"\n")
        if len(received) >= 8 and len(received) >= 8 + int(received[:8], 16):
            return received[8:]


def _main() -> None:
    path, listener, address, timeout, fallback = sys.argv[1:]
    try:
        payload = _read_payload()
        request = address.encode() + b"\n" + payload
        answer = _ask(path, int(listener), request, float(timeout))
    except Exception:
        answer = fallback.encode()
    while answer:
        answer = answer[write(1, answer) :]


if __name__ == "__main__":
    _main()
