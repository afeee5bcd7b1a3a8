"""Removes secrets from values and texts, and truncates them for records and logs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


# Compared without case and separators, so that one spelling stands for all. Cursors and limits are
# called tokens as well; hiding them would make a record of paging or of a model call useless.
_SECRET_NAME: Final = re.compile(
    r"passw(?:or)?d|passphrase|passcode|pwd$"
    r"|secret(?!ar)|credential|authorization|cookie|bearer"
    r"|(?<!next)(?<!page)(?<!continuation)(?<!sync)(?<!max)(?<!stop)token(?:s|value|hash)?$"
    r"|(?:github|gitlab|azure|devops)pat$"
    r"|^(?:auth|jwt|otp)$"
)
_KEY_AT_END: Final = re.compile(r"keys?(?:pem|value|data)?$")
_SEPARATORS: Final = re.compile(r"[\W_\d]+")

# Most keys open nothing: `primaryKey`, `sortKey`, `issueKey`. These do.
_KINDS_OF_KEYS: Final = (
    "api private access account signing encryption master ssh gpg pgp rsa aes hmac jwt auth admin "
    "app application client consumer deploy functions license service servicerole shared "
    "subscription webhook"
)
# Whoever has an account there writes `openaiKey` for what opens it.
_ACCOUNTS: Final = (
    "openai anthropic claude gemini google vertex azure aws mistral groq grok xai cohere deepseek "
    "openrouter together fireworks perplexity replicate huggingface hf nvidia cerebras voyage jina "
    "elevenlabs deepgram assemblyai pinecone qdrant weaviate supabase github gitlab bitbucket "
    "slack discord telegram twilio sendgrid mailgun mailchimp postmark resend stripe paypal "
    "shopify hubspot salesforce notion airtable linear asana trello zendesk intercom datadog "
    "sentry grafana newrelic honeycomb pagerduty algolia typesense mapbox maps weather "
    "openweathermap serper serpapi tavily brave exa firecrawl cloudflare vercel netlify heroku "
    "digitalocean langsmith langfuse"
)
_BEFORE_KEY: Final = tuple(f"{_KINDS_OF_KEYS} {_ACCOUNTS}".split())

# A name may be as long as its writer likes.
_MAX_READ_CHARACTERS: Final = 200


def is_secret_key(key: str) -> bool:
    """Whether a member of this name is hidden whatever it holds."""
    if len(key) > 2 * _MAX_READ_CHARACTERS:
        key = f"{key[:_MAX_READ_CHARACTERS]}{key[-_MAX_READ_CHARACTERS:]}"
    name = _SEPARATORS.sub("", key).lower()
    return _SECRET_NAME.search(name) is not None or _is_key_to_something(name)


def is_amount(key: str, value: object) -> bool:
    """Whether this is a number of tokens rather than tokens, such as `{"inputTokens": 512}`."""
    return isinstance(value, int | float) and key.lower().endswith("tokens")


def _is_key_to_something(name: str) -> bool:
    ending = _KEY_AT_END.search(name)
    return ending is not None and name.endswith(_BEFORE_KEY, 0, ending.start())


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


_MAX_KEY_CHARACTERS: Final = 200
_MAX_REMEMBERED_CHARACTERS: Final = 64
_MAX_DEPTH: Final = 32
_MAX_INTEGER_BITS: Final = 4096
# A secret that begins in what is shown is recognised by what follows it, within so many characters.
_LOOK_AHEAD_CHARACTERS: Final = 512
_BYTES_PER_ITEM: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """The rules of one record. Whatever is put in, what comes out is JSON, a copy, and small."""

    keep_inputs: bool = True
    """Whether inputs of tools are kept at all, or only what kind of value they were."""
    max_text_characters: int = 2_000
    max_items: int = 1_000
    """How many values are kept of one value, over all its levels."""
    max_total_characters: int = 20_000
    """How much text is kept of one value, over all its levels."""

    def value(self, value: object) -> JsonValue:
        return self.sized_value(value)[0]

    def sized_value(self, value: object) -> tuple[JsonValue, int]:
        """The value as it may be kept, and about how many bytes of memory that takes."""
        walk = _Walk(self)
        kept = walk.value(value, 0)
        characters = self.max_total_characters - walk.characters_left
        return kept, (self.max_items - walk.items_left) * _BYTES_PER_ITEM + characters

    def text(self, text: str) -> str:
        return _truncate(text, self.max_text_characters)

    def input(self, value: object) -> JsonValue:
        """An input of a tool: as any other value, or a note where inputs are not kept."""
        return (
            self.value(value) if self.keep_inputs else f"[input not kept: {_describe_kind(value)}]"
        )


class _Walk:
    """One pass over one value; stops looking when what it may keep is used up."""

    def __init__(self, rules: Redaction) -> None:
        self._max_text_characters = rules.max_text_characters
        self.items_left = rules.max_items
        self.characters_left = rules.max_total_characters

    def value(self, value: object, depth: int) -> JsonValue:
        self.items_left -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (int, float)):
            return _format_number(value)
        if depth >= _MAX_DEPTH:
            return f"[{_describe_kind(value)}, too deep to be kept]"
        if isinstance(value, (dict, Mapping)):
            return self._members(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("list[object] | tuple[object, ...]", value), depth)
        return f"[{_describe_kind(value)}]"

    def _members(self, members: Mapping[object, object], depth: int) -> JsonValue:
        kept: dict[str, JsonValue] = {}
        for count, (key, value) in enumerate(members.items()):
            if self.items_left <= 0 or self.characters_left <= 0:
                kept["…"] = f"[{len(members) - count:,} more members]"
                break
            name = key if isinstance(key, str) else str(key)
            shown, is_secret = _read_key(name)
            self.characters_left -= len(shown)
            if shown in kept:
                # Two long keys with the same beginning; neither may hide the other.
                shown = f"{shown} ({count})"
            if is_secret and _is_hidden(name, value):
                self.items_left -= 1
                kept[shown] = REDACTED
            else:
                kept[shown] = self.value(value, depth + 1)
        return kept

    def _items(self, items: list[object] | tuple[object, ...], depth: int) -> JsonValue:
        kept: list[JsonValue] = []
        for count, item in enumerate(items):
            if self.items_left <= 0 or self.characters_left <= 0:
                kept.append(f"[{len(items) - count:,} more items]")
                break
            kept.append(self.value(item, depth + 1))
        return kept

    def _text(self, text: str) -> str:
        limit = self._max_text_characters
        if self.characters_left < limit:
            limit = max(0, self.characters_left)
        shown = _truncate(text, limit)
        self.characters_left -= len(shown)
        return shown


def _read_key(key: str) -> tuple[str, bool]:
    """The key as it may be shown, and whether it stands for a secret."""
    # The same few keys come again and again; a long one is not worth the memory.
    return _read_short_key(key) if len(key) <= _MAX_REMEMBERED_CHARACTERS else _read_any_key(key)


def _read_any_key(key: str) -> tuple[str, bool]:
    return _truncate(key, _MAX_KEY_CHARACTERS), is_secret_key(key)


_read_short_key = lru_cache(maxsize=4096)(_read_any_key)


def _is_hidden(key: str, value: object) -> bool:
    # That there is none, or whether there is one, is no secret.
    return value is not None and not isinstance(value, bool) and not is_amount(key, value)


def _truncate(text: str, limit: int) -> str:
    if len(text) <= limit:
        return remove_secrets(text)
    clean = remove_secrets(text[: limit + _LOOK_AHEAD_CHARACTERS])
    shown = clean[: max(0, min(limit, len(clean) - _LOOK_AHEAD_CHARACTERS))]
    return f"{shown}… [{len(text):,} characters]"


def _format_number(value: float | None) -> JsonValue:
    """As JSON has it; numbers that JSON has not are told in words."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return f"[integer of {value.bit_length():,} bits]"
    return value


def _describe_kind(value: object) -> str:
    match value:
        case str():
            return f"text of {len(value):,} characters"
        case Mapping():
            return f"object with {len(cast('Mapping[object, object]', value)):,} members"
        case list() | tuple():
            return f"list of {len(cast('list[object]', value)):,} items"
        case bytes() | bytearray():
            return f"{len(value):,} bytes"
        case _:
            return type(value).__name__


_MAX_LINE_CHARACTERS: Final = 500


def format_log_line(text: str) -> str:
    """What somebody else wrote, so that it cannot look like lines of our own."""
    # Cut first, with room for spaces that go: it may be megabytes long.
    head = remove_secrets(text[: 4 * _MAX_LINE_CHARACTERS])
    line = " ".join("".join(char if char.isprintable() else " " for char in head).split())
    is_whole = len(line) <= _MAX_LINE_CHARACTERS and len(text) <= 4 * _MAX_LINE_CHARACTERS
    return line if is_whole else f"{line[: _MAX_LINE_CHARACTERS - 1]}…"
