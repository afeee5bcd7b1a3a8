"""Which names of members stand for secrets: `apiKey`, `client_secret`, `X-Auth-Token`."""

from __future__ import annotations

import re
from typing import Final

# Compared without case and separators, so that one spelling stands for all. Cursors and limits are
# called tokens as well; hiding them would make a record of paging or of a model call useless.
_SECRET_NAME: Final = re.compile(
    r"passw(?:or)?d|passphrase|passcode|pwd$"
    r"|secret(?!ar)|credential|authorization|cookie|bearer"
    r"|(?:api|private|access|account|signing|encryption|master|ssh)keys?(?:pem|value|data)?$"
    r"|(?<!next)(?<!page)(?<!continuation)(?<!sync)(?<!max)(?<!stop)token(?:s|value|hash)?$"
    r"|^(?:auth|jwt|otp)$"
)
_SEPARATORS: Final = re.compile(r"[\W_\d]+")

# A name may be as long as its writer likes.
_MAX_READ_CHARACTERS: Final = 200


def is_secret_key(key: str) -> bool:
    """Whether a member of this name is hidden whatever it holds."""
    if len(key) > 2 * _MAX_READ_CHARACTERS:
        key = f"{key[:_MAX_READ_CHARACTERS]}{key[-_MAX_READ_CHARACTERS:]}"
    return _SECRET_NAME.search(_SEPARATORS.sub("", key).lower()) is not None


def is_amount(key: str, value: object) -> bool:
    """Whether this is a number of tokens rather than tokens, such as `{"inputTokens": 512}`."""
    return isinstance(value, int | float) and key.lower().endswith("tokens")
