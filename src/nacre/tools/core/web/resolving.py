"""From the name of a host to its addresses."""

from __future__ import annotations

import socket
from typing import Protocol

import anyio


class Resolve(Protocol):
    """The addresses of a host; raises OSError when it has none."""

    async def __call__(self, host: str, port: int, /) -> list[str]: ...


async def system_resolve(host: str, port: int, /) -> list[str]:
    """As the system knows it."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
