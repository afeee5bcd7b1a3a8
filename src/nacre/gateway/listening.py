"""The socket that the gateway listens on."""

from __future__ import annotations

import errno
import socket

from nacre.errors import ConfigError


def listen_at(host: str, port: int) -> socket.socket:
    """Port 0 is any that is free. Raises ConfigError where the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError("gateway.port", f"is {port}: {_describe_problem(error, host)}") from error
    # With its protocol named: asyncio switches Nagle's algorithm off only for sockets that say so,
    # and a stream of small events would wait 40 ms for each acknowledgement.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _describe_problem(error: OSError | OverflowError, host: str) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"another program listens there, at {host}; end it, or give another: --port"
        case errno.EACCES:
            return "ports below 1024 are for the administrator; give another: --port"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no address {host}; give another: --host"
        case _:
            problem = getattr(error, "strerror", None) or str(error)
            return f"it cannot be used at {host}: {problem}; give another: --port or --host"


def url_of(host: str, listener: socket.socket) -> str:
    """Where this machine reaches it."""
    port = listener.getsockname()[1]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"
