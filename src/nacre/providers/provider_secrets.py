"""The API key of a provider, and the redaction of its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from nacre.config import API_KEY_VARIABLES, member_path
from nacre.errors import MissingReferenceError
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from nacre.config import ProviderConfig
    from nacre.json_types import JsonValue


# SDKs require a key, but self-hosted servers often have none.
_NO_KEY: Final = "no-key"
_REDACTED: Final = "[redacted]"
# Shorter values, such as `true`, also occur in ordinary text.
_MIN_SECRET_CHARACTERS: Final = 6
_MAX_TEXT_CHARACTERS: Final = 500
_MAX_VALUE_CHARACTERS: Final = 20_000


def get_api_key(config: ProviderConfig) -> str:
    """The API key of the provider.

    Raises MissingReferenceError if a hosted provider has no key, or if a variable or file in its
    configuration is missing.
    """
    path = member_path("models.providers", config.name)
    if config.missing:
        raise MissingReferenceError(path, f"cannot be used: {config.missing}")
    if config.api_key:
        return config.api_key
    if config.base_url or config.headers:
        return _NO_KEY
    raise MissingReferenceError(
        f"{path}.apiKey",
        f"is not set; set {API_KEY_VARIABLES[config.api]}, or configure `{path}.apiKey` or "
        f"`{path}.apiKeyFile`",
    )


class ProviderSecrets:
    """Removes secrets: the API key, the values of all headers, and recognizable tokens."""

    def __init__(self, config: ProviderConfig) -> None:
        values = [config.api_key, *config.headers.values()]
        # For `Bearer abc`, also the token alone.
        words = {word for value in values for word in (value, *value.split())}
        # Longest first, because one value may be a part of another.
        self._values = sorted(
            (word for word in words if len(word) >= _MIN_SECRET_CHARACTERS), key=len, reverse=True
        )

    def text(self, text: str, *, max_characters: int = _MAX_TEXT_CHARACTERS) -> str:
        """The text without secrets, truncated."""
        return Redaction(max_text_characters=max_characters).text(self._replace_values(text))

    def value(self, value: JsonValue) -> JsonValue:
        """The JSON value without secrets, of limited size."""
        rules = Redaction(max_total_characters=_MAX_VALUE_CHARACTERS)
        return self._redact(rules.value(value))

    def url(self, url: str) -> str:
        """The URL without user, query and secrets."""
        try:
            parts = urlsplit(url)
            address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        except ValueError:
            return "[not a URL]"
        return self.text(address)

    def _redact(self, value: JsonValue) -> JsonValue:
        # Redaction has limited the depth.
        match value:
            case str():
                return self._replace_values(value)
            case list():
                return [self._redact(item) for item in value]
            case dict():
                return {
                    self._replace_values(key): self._redact(each) for key, each in value.items()
                }
            case _:
                return value

    def _replace_values(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, _REDACTED)
        return text
