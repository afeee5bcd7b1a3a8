"""The socket that the gateway listens on."""

from __future__ import annotations

import socket

from nacre.errors import ConfigError


def listen_at(host: str, port: int) -> socket.socket:
    """Port 0 is any that is free. Raises ConfigError where the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            "gateway.port", f"{port} at {host} cannot be used: {error}; another one: --port"
        ) from error
    # With its protocol named: asyncio switches Nagle's algorithm off only for sockets that say so,
    # and a stream of small events would wait 40 ms for each acknowledgement.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def url_of(host: str, listener: socket.socket) -> str:
    """Where this machine reaches it."""
    port = listener.getsockname()[1]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"
