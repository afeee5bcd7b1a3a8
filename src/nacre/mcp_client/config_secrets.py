"""Takes the secrets of one server's configuration out of what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from nacre.json_types import NotJsonError, encode_json
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from nacre.config.mcp_entry import McpServerConfig
    from nacre.json_types import JsonValue

_REDACTED: Final = "[redacted]"
# Shorter values are words such as `true`, or would tear holes into every sentence.
_MIN_CHARACTERS: Final = 6
_MAX_TEXT_CHARACTERS: Final = 2_000
_MAX_DATA_BYTES: Final = 8_000


class ConfigSecrets:
    """Every value of `env` and `headers` counts as secret, what references were replaced by, all
    of a URL but its host, and what is known for a token by its shape."""

    def __init__(self, config: McpServerConfig) -> None:
        values = [
            *config.env.values(),
            *config.headers.values(),
            *config.looked_up,
            *_find_url_secrets(config.url),
        ]
        # `Bearer abc`: the token alone as well.
        words = [word for value in values for word in (value, *value.split())]
        # Longest first, so that none hides a part of another.
        long_enough = {word for word in words if len(word) >= _MIN_CHARACTERS}
        self._values = sorted(long_enough, key=len, reverse=True)
        self._rules = Redaction(max_text_characters=_MAX_TEXT_CHARACTERS)

    def clean(self, text: str) -> str:
        """For people: a line of it, or a few."""
        return self._rules.text(self.without_values(text))

    def clean_data(self, data: JsonValue) -> JsonValue:
        """What came with an error; in words if it is large."""
        try:
            size_bytes = len(encode_json(data))
        except NotJsonError:
            return None
        if size_bytes > _MAX_DATA_BYTES:
            return f"[{size_bytes:,} bytes]"
        return self._rules.value(self._data_without_values(data))

    def without_values(self, text: str) -> str:
        """The whole text, without what the configuration itself holds."""
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return text

    def _data_without_values(self, data: JsonValue) -> JsonValue:
        # No deeper than JSON that could be written.
        match data:
            case str():
                return self.without_values(data)
            case list():
                return [self._data_without_values(item) for item in data]
            case dict():
                return {
                    self.without_values(key): self._data_without_values(member)
                    for key, member in data.items()
                }
            case _:
                return data


def _find_url_secrets(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user, _, _ = parts.netloc.rpartition("@")
    values = [value for _, value in parse_qsl(parts.query)]
    return [parts.path, parts.query, user, *values]
