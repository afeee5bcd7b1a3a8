"""The token of the gateway: that of the configuration, or one that is made and kept."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from nacre.config.folders import user_folder
from nacre.config.gateway import TOKEN_VARIABLE, is_loopback
from nacre.errors import ConfigError
from nacre.mcp_client.private_file import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.gateway import GatewayConfig

_FILE: Final = "gateway-token"
# As RFC 6750 has it; anything else would not fit into a header.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MIN_CHARACTERS: Final = 16


def token_file(environment: Mapping[str, str]) -> Path:
    """Where a token that was made up is kept."""
    return user_folder("data", environment) / _FILE


def kept_token(path: Path) -> str:
    """The token that was made at an earlier start, or a new one, kept for the next. Blocks."""
    try:
        found = (read_private(path) or b"").decode("ascii", "replace").strip()
        if len(found) >= _MIN_CHARACTERS and _TOKEN.fullmatch(found):
            return found
        made = secrets.token_urlsafe(32)
        write_private(path, f"{made}\n".encode())
        return made
    except OSError as error:
        raise ConfigError(
            "gateway.auth.token", f"is not set, and none can be kept in {path}: {error}"
        ) from error


def checked_auth(config: GatewayConfig, environment: Mapping[str, str]) -> GatewayConfig:
    """Raises ConfigError for who may call, where it cannot be so; without the token in it."""
    if config.auth_mode == "none" and not is_loopback(config.host):
        raise ConfigError(
            "gateway.auth.mode",
            f'is "none", but the gateway listens at {config.host}: without a token only this '
            "machine may be served (127.0.0.1, ::1 or localhost)",
        )
    token = config.token
    if token and (len(token) < _MIN_CHARACTERS or not _TOKEN.fullmatch(token)):
        raise ConfigError(
            TOKEN_VARIABLE if token == environment.get(TOKEN_VARIABLE) else "gateway.auth.token",
            f"holds {len(token)} characters; a token has at least {_MIN_CHARACTERS}, "
            "letters, digits and -._~+/ only",
        )
    return config
