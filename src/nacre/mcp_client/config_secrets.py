"""Takes the secrets of one server's configuration out of text that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from nacre.config.mcp import McpServerConfig

_REDACTED: Final = "[redacted]"
# Shorter values are words such as `true`, or would tear holes into every sentence.
_LEAST_CHARACTERS: Final = 6
_MAX_CHARACTERS: Final = 2_000


class ConfigSecrets:
    """Every value of `env` and `headers` counts as secret, all of a URL but its host, and what is
    known for a token by its shape."""

    def __init__(self, config: McpServerConfig) -> None:
        values = [*config.env.values(), *config.headers.values(), *_secrets_of(config.url)]
        # `Bearer abc`: the token alone as well.
        words = [word for value in values for word in (value, *value.split())]
        # Longest first, so that none hides a part of another.
        long_enough = {word for word in words if len(word) >= _LEAST_CHARACTERS}
        self._values = sorted(long_enough, key=len, reverse=True)
        self._rules = Redaction(max_text_characters=_MAX_CHARACTERS)

    def clean(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return self._rules.text(text)


def _secrets_of(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user, _, _ = parts.netloc.rpartition("@")
    values = [value for _, value in parse_qsl(parts.query)]
    return [parts.path, parts.query, user, *values]
