"""Finds well-known secrets inside text; everything here takes time linear in the text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

REDACTED: Final = "[redacted]"

# Shorter than the shortest thing that is looked for.
_MIN_SECRET_CHARACTERS: Final = 10


class _SecretPattern(NamedTuple):
    markers: tuple[str, ...]
    """Lower case; without one of these in the text the pattern cannot match and is not tried."""
    pattern: re.Pattern[str]
    replacement: str


def _make_pattern(*markers: str, pattern: str, replacement: str = REDACTED) -> _SecretPattern:
    return _SecretPattern(markers, re.compile(pattern, re.ASCII), replacement)


# No pattern may look at the same character again and again: a repeated part either has a bound, or
# ends the match wherever it stops, or can start only at the start of a word.
_SECRETS: Final = (
    _make_pattern(
        "private key-----",
        pattern=r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
        r"(?:[\s\S]*?-----END [A-Z ]{0,40}PRIVATE KEY-----|[\s\S]*)",
    ),
    _make_pattern("sk-", pattern=r"(?<![\w-])sk-[\w-]{12,}"),
    _make_pattern("k_live_", "k_test_", pattern=r"[sr]k_(?:live|test)_[A-Za-z0-9]{12,}"),
    _make_pattern(
        "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_",
        pattern=r"gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}",
    ),
    _make_pattern("glpat-", pattern=r"glpat-[\w-]{16,}"),
    _make_pattern("xox", pattern=r"xox[abeprs]-[\w-]{8,}"),
    _make_pattern("akia", "asia", pattern=r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    _make_pattern("aiza", pattern=r"AIza[\w-]{30,}"),
    _make_pattern("npm_", "hf_", pattern=r"(?:npm|hf)_[A-Za-z0-9]{30,}"),
    _make_pattern("eyj", pattern=r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*)?"),
    _make_pattern(
        "authorization",
        pattern=r"(?i)(authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?"
        r"(?:(?:basic|bearer|digest|token)\s{1,4})?)[^\s\"',;\\]{4,}",
        replacement=rf"\1{REDACTED}",
    ),
    _make_pattern(
        "bearer",
        pattern=r"(?i)(bearer\s{1,4})[\w.~+/=-]{8,}",
        replacement=rf"\1{REDACTED}",
    ),
    _make_pattern(
        "cookie",
        pattern=r"(?i)(cookie\s{0,4}:\s{0,4})[\w.-]{1,64}=[^\r\n\"']+",
        replacement=rf"\1{REDACTED}",
    ),
    _make_pattern(
        "://",
        pattern=r"(://[^\s/?#:@\"']{0,128}:)[^\s/@]{1,256}@",
        replacement=rf"\1{REDACTED}@",
    ),
    # `"password": "..."` in code or in JSON that is itself text.
    _make_pattern(
        "passw", "passphrase", "secret", "token", "key",
        pattern=r"(?i)((?:passw(?:or)?d|passphrase|secret|token|(?:api|private|access)[_-]?key)"
        r"\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"'])[^\"'\\\n]{1,256}",
        replacement=rf"\1{REDACTED}",
    ),
    # `--password ...`, `PGPASSWORD=...`, `?access_token=...`
    _make_pattern(
        "passw", "secret", "token", "key", "sig=", "signature=",
        pattern=r"(--(?:password|secret|token|api-key)[ =]"
        r"|(?:PASSWORD|PASSWD|SECRET|TOKEN|(?:API|ACCESS|PRIVATE)_KEY)="
        r"|[?&](?:key|sig|signature|[\w-]{0,30}(?:[Tt]oken|[Ss]ecret|[Pp]assword|[Aa]pi_?[Kk]ey))=)"
        r"(?!\$|\[redacted\])[^\s\"';&#]{3,}",
        replacement=rf"\1{REDACTED}",
    ),
)  # fmt: skip

_MARKERS: Final = tuple(dict.fromkeys(marker for secret in _SECRETS for marker in secret.markers))


def remove_secrets(text: str) -> str:
    """The text with each secret that is known by its shape replaced by `[redacted]`."""
    if len(text) < _MIN_SECRET_CHARACTERS:
        return text
    lowered = text.lower()
    # Written out for speed: this is all that a text without secrets costs.
    for marker in _MARKERS:
        if marker in lowered:
            return _replace_secrets(text, lowered)
    return text


def _replace_secrets(text: str, lowered: str) -> str:
    found = {marker for marker in _MARKERS if marker in lowered}
    for secret in _SECRETS:
        if not found.isdisjoint(secret.markers):
            text = secret.pattern.sub(secret.replacement, text)
    return text
