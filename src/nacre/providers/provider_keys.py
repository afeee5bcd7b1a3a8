"""The key that a provider is asked with, and what to do where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config.fields import member_path
from nacre.config.models import API_KEY_VARIABLES
from nacre.errors import MissingReferenceError

if TYPE_CHECKING:
    from nacre.config.models import ProviderConfig

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
