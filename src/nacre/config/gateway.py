"""The `gateway` contract: where it listens, who may call it, and how much at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.config.section_values import file_path, secret

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.config.section import Section

AuthMode = Literal["token", "none"]

TOKEN_VARIABLE: Final = "NACRE_GATEWAY_TOKEN"

_ORIGINS: Final = 'origins such as "https://app.example.org", and "*" for all'
_ORIGIN = re.compile(r"\*|https?://[A-Za-z0-9.:\[\]-]+")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """The HTTP server. It holds its token, and never shows it."""

    host: str = "127.0.0.1"
    port: int = 18_789
    auth_mode: AuthMode = "token"
    token: str = field(default="", repr=False)
    """Empty where none is configured: one has to be made."""
    token_file: Path | None = None
    """Where the token was read from."""
    max_body_bytes: int = 8_388_608
    max_concurrent_runs: int = 64
    shutdown_seconds: float = 10.0
    cors_origins: tuple[str, ...] = ()


def read_gateway(gateway: Section) -> GatewayConfig:
    """Read `gateway`; faults are noted."""
    auth, default = gateway.section("auth"), GatewayConfig()
    config = GatewayConfig(
        host=gateway.text(
            "host", default.host, allowed="an address or a host name", fits=_HOST.fullmatch
        ),
        port=gateway.whole("port", default.port, least=0, most=65_535),
        auth_mode=auth.choice("mode", default.auth_mode, get_args(AuthMode)),
        token=secret(auth, "token", file_key="tokenFile", variable=TOKEN_VARIABLE),
        token_file=file_path(auth, "tokenFile"),
        max_body_bytes=gateway.whole(
            "maxBodyBytes", default.max_body_bytes, least=1_024, most=1_073_741_824
        ),
        max_concurrent_runs=gateway.whole(
            "maxConcurrentRuns", default.max_concurrent_runs, least=1, most=10_000
        ),
        shutdown_seconds=gateway.number(
            "shutdownSeconds", default.shutdown_seconds, least=0, most=600
        ),
        cors_origins=gateway.texts("corsOrigins", allowed=_ORIGINS, fits=_ORIGIN.fullmatch),
    )
    if config.auth_mode == "none" and not is_loopback(config.host):
        auth.refuse(
            "mode",
            f'is "none", but `gateway.host` is "{config.host}": without a token only this machine '
            "may be served (127.0.0.1, ::1 or localhost)",
        )
    return config


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    # Few need more than the first look.
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
