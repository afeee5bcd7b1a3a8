"""The API key of a provider, and the redaction of its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from nacre.config.fields import member_path
from nacre.config.models import API_KEY_VARIABLES
from nacre.errors import MissingReferenceError
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from nacre.config.models import ProviderConfig
    from nacre.json_types import JsonValue


# SDKs insist on a key; servers of one's own often have none.
_NO_KEY: Final = "no-key"


def key_of(config: ProviderConfig) -> str:
    """Raises MissingReferenceError where the provider's own servers would be asked without one,
    and where a variable or file that the configuration names for the provider is missing."""
    place = member_path("models.providers", config.name)
    if config.missing:
        raise MissingReferenceError(place, f"cannot be asked: {config.missing}")
    if config.api_key:
        return config.api_key
    if config.base_url or config.headers:
        return _NO_KEY
    raise MissingReferenceError(
        f"{place}.apiKey",
        f"is not set; set {API_KEY_VARIABLES[config.api]}, or write `{place}.apiKey` or "
        f"`{place}.apiKeyFile`",
    )


_REDACTED: Final = "[redacted]"
# Shorter values are words such as `true`, or would tear holes into every sentence.
_MIN_CHARACTERS: Final = 6
_MAX_TEXT_CHARACTERS: Final = 500
_MAX_VALUE_CHARACTERS: Final = 20_000


class ProviderSecrets:
    """The key and every header count as secret, and what is known for a token by its shape."""

    def __init__(self, config: ProviderConfig) -> None:
        values = [config.api_key, *config.headers.values()]
        # `Bearer abc`: the token alone as well.
        words = {word for value in values for word in (value, *value.split())}
        # Longest first, so that none hides a part of another.
        self._values = sorted(
            (word for word in words if len(word) >= _MIN_CHARACTERS), key=len, reverse=True
        )

    def text(self, text: str, *, max_characters: int = _MAX_TEXT_CHARACTERS) -> str:
        """For people: a line of it, or a few."""
        return Redaction(max_text_characters=max_characters).text(self._without_values(text))

    def value(self, value: JsonValue) -> JsonValue:
        """A JSON value, capped."""
        rules = Redaction(max_total_characters=_MAX_VALUE_CHARACTERS)
        return self._redact(rules.value(value))

    def url(self, url: str) -> str:
        """Where a request goes: no user, no query."""
        try:
            parts = urlsplit(url)
            address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        except ValueError:
            return "[not a URL]"
        return self.text(address)

    def _redact(self, value: JsonValue) -> JsonValue:
        # Already redacted, so no deeper than a record may be.
        match value:
            case str():
                return self._without_values(value)
            case list():
                return [self._redact(item) for item in value]
            case dict():
                return {
                    self._without_values(key): self._redact(each) for key, each in value.items()
                }
            case _:
                return value

    def _without_values(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return text
