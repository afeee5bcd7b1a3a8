"""Removes secrets from values and texts, and truncates them for records and logs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject, JsonValue


# Matched without case and separators, so that one spelling covers all. Paging cursors and token
# limits are not secrets, and a record without them would be useless.
_SECRET_NAME: Final = lazy_pattern(
    r"passw(?:or)?d|passphrase|passcode|pwd$"
    r"|secret(?!ar)|credential|authorization|cookie|bearer"
    r"|(?<!next)(?<!page)(?<!continuation)(?<!sync)(?<!max)(?<!stop)token(?:s|value|hash)?$"
    r"|(?:github|gitlab|azure|devops)pat$"
    r"|^(?:auth|jwt|otp)$"
)
_KEY_AT_END: Final = lazy_pattern(r"keys?(?:pem|value|data)?$")
_SEPARATORS: Final = lazy_pattern(r"[\W_\d]+")

# Most names that end with `key` are harmless: `primaryKey`, `sortKey`, `issueKey`. With one of
# these words before it, the key is a secret.
_KINDS_OF_KEYS: Final = (
    "api private access account signing encryption master ssh gpg pgp rsa aes hmac jwt auth admin "
    "app application client consumer deploy functions license service servicerole shared "
    "subscription webhook"
)
# Services with API keys: `openaiKey`.
_SERVICES: Final = (
    "openai anthropic claude gemini google vertex azure aws mistral groq grok xai cohere deepseek "
    "openrouter together fireworks perplexity replicate huggingface hf nvidia cerebras voyage jina "
    "elevenlabs deepgram assemblyai pinecone qdrant weaviate supabase github gitlab bitbucket "
    "slack discord telegram twilio sendgrid mailgun mailchimp postmark resend stripe paypal "
    "shopify hubspot salesforce notion airtable linear asana trello zendesk intercom datadog "
    "sentry grafana newrelic honeycomb pagerduty algolia typesense mapbox maps weather "
    "openweathermap serper serpapi tavily brave exa firecrawl cloudflare vercel netlify heroku "
    "digitalocean langsmith langfuse"
)
_BEFORE_KEY: Final = tuple(f"{_KINDS_OF_KEYS} {_SERVICES}".split())

# Of a very long name, only this many characters at each end are checked.
_MAX_CHECKED_CHARACTERS: Final = 200


def is_secret_key(key: str) -> bool:
    """Whether the value of a member with this name is a secret."""
    if len(key) > 2 * _MAX_CHECKED_CHARACTERS:
        key = f"{key[:_MAX_CHECKED_CHARACTERS]}{key[-_MAX_CHECKED_CHARACTERS:]}"
    name = _SEPARATORS.sub("", key).lower()
    return _SECRET_NAME.search(name) is not None or _is_name_of_secret_key(name)


def is_amount(key: str, value: object) -> bool:
    """Whether the value is a token count, such as `{"inputTokens": 512}`."""
    return isinstance(value, int | float) and key.lower().endswith("tokens")


def _is_name_of_secret_key(name: str) -> bool:
    ending = _KEY_AT_END.search(name)
    return ending is not None and name.endswith(_BEFORE_KEY, 0, ending.start())


REDACTED: Final = "[redacted]"

# No pattern matches a shorter text.
_MIN_SECRET_CHARACTERS: Final = 7


class _SecretPattern(NamedTuple):
    markers: tuple[str, ...]
    """Lower case; the pattern is tried only if the text contains one of these."""
    pattern: str
    replacement: str


def _make_pattern(*markers: str, pattern: str, replacement: str = REDACTED) -> _SecretPattern:
    return _SecretPattern(markers, pattern, replacement)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when a text first contains one of its markers."""
    return re.compile(pattern, re.ASCII)


# All patterns must match in linear time. So a repeated part has an upper bound, or ends the match
# wherever it stops, or can start only at the beginning of a word.
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
    # The secret of a key id has no form of its own, so only the place tells it from other text.
    _make_pattern(
        "akia", "asia",
        pattern=r"(?:AKIA|ASIA)[A-Z0-9]{16}(?:([^A-Za-z0-9/+]{1,20})[A-Za-z0-9/+]{40}(?![\w/+=]))?",
        replacement=rf"{REDACTED}\1",
    ),
    _make_pattern(
        "secret",
        pattern=r"(?i)(secret[_-]?access[_-]?key\s{0,4}[:=]\s{0,4})[a-z0-9/+]{16,}",
        replacement=rf"\1{REDACTED}",
    ),
    # The last characters of a key name the service: storage, Batch or Cosmos DB.
    _make_pattern(
        "+ast", "+aba", "+acdb",
        pattern=r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{70,80}\+A(?:St|Ba|CDb)[A-Za-z0-9+/]{4,8}={0,2}",
    ),
    _make_pattern(":aa", pattern=r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    _make_pattern("sg.", pattern=r"(?<![\w.-])SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _make_pattern(
        "/webhooks/",
        pattern=r"(/webhooks/\d{16,20}/)[\w-]{40,}",
        replacement=rf"\1{REDACTED}",
    ),
    _make_pattern("hvb.", "hvr.", "hvs.", pattern=r"(?<![\w.-])hv[brs]\.[\w-]{20,}"),
    _make_pattern("_v1_", pattern=r"do[opr]_v1_[a-f0-9]{32,}"),
    _make_pattern("pypi-ag", pattern=r"pypi-Ag[\w-]{40,}"),
    _make_pattern("age-secret-key-", pattern=r"AGE-SECRET-KEY-[A-Z0-9-]{20,}"),
    _make_pattern("aiza", pattern=r"AIza[\w-]{30,}"),
    _make_pattern("npm_", "hf_", pattern=r"(?:npm|hf)_[A-Za-z0-9]{30,}"),
    _make_pattern("eyj", pattern=r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*)?"),
    _make_pattern(
        "authorization",
        pattern=r"(?i)(authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?"
        r"(?:(?:basic|bearer|bot|digest|token)\s{1,4})?)[^\s\"',;\\]{4,}",
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
    # `password=...` in any case. The right side of an assignment in code is no secret: a call, a
    # variable with such a name, or a placeholder.
    _make_pattern(
        "pass", "pwd=", "secret=", "key=", "token=",
        pattern=r"(?i)((?:passw(?:or)?d|passphrase|pwd|secret|(?:access|api|auth|bot)[_-]?token"
        r"|(?:access|account|api|private|shared)[_-]?key)=)"
        r"(?![$%*.=]|(?:none|null|true|false|undefined|await|input)\b|[\w.]{1,60}[(\[]"
        r"|(?:\w{1,40}\.){0,3}(?:\w{1,20}_)?(?:passw(?:or)?d|passphrase|pwd|secret|token|key)\b)"
        r"[^\s\"'`;&#,()<>{}\[\]]{3,}",
        replacement=rf"\1{REDACTED}",
    ),
)  # fmt: skip

# The token of a Discord bot has no marker; the search for its first dot is as fast. The part before
# that dot is the public id of the bot.
_BOT_TOKEN: Final = lazy_pattern(
    r"\.(?:(?<=[MNO][\w-]{23}\.)|(?<=[MNO][\w-]{25}\.))[\w-]{6}\.[\w-]{27,40}", re.ASCII
)
_MIN_BOT_TOKEN_CHARACTERS: Final = 59

_MARKERS: Final = tuple(dict.fromkeys(marker for secret in _SECRETS for marker in secret.markers))

_SIGNS: Final = "_-:/.+="


@cache
def _group_markers() -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """The markers that are words, and the others by a sign that they contain: most texts are
    accepted after few searches."""
    # Those that contain another one are not needed.
    left = [it for it in _MARKERS if sum(other in it for other in _MARKERS) == 1]
    words = tuple(marker for marker in left if marker.isalnum())
    by_sign: list[tuple[str, tuple[str, ...]]] = []
    for sign in _SIGNS:
        by_sign.append((sign, tuple(marker for marker in left if sign in marker)))
        left = [marker for marker in left if sign not in marker]
    return words, tuple(by_sign)


def remove_secrets(text: str) -> str:
    """The text with every recognized secret replaced by `[redacted]`."""
    if len(text) < _MIN_SECRET_CHARACTERS:
        return text
    if len(text) >= _MIN_BOT_TOKEN_CHARACTERS:
        text = _BOT_TOKEN.sub(f".{REDACTED}", text)
    lowered = text.lower()
    words, markers_by_sign = _group_markers()
    # Plain loops are the fastest way to accept a text without secrets.
    for marker in words:
        if marker in lowered:
            return _replace_secrets(text, lowered)
    for sign, markers in markers_by_sign:
        if sign in lowered:
            for marker in markers:
                if marker in lowered:
                    return _replace_secrets(text, lowered)
    return text


def _replace_secrets(text: str, lowered: str) -> str:
    found = {marker for marker in _MARKERS if marker in lowered}
    for secret in _SECRETS:
        if not found.isdisjoint(secret.markers):
            text = _compile(secret.pattern).sub(secret.replacement, text)
    return text


_MAX_KEY_CHARACTERS: Final = 200
_MAX_CACHED_KEY_CHARACTERS: Final = 64
_MAX_DEPTH: Final = 32
_MAX_INTEGER_BITS: Final = 4096
_MAX_PLAIN_INTEGER: Final = 1 << 53
# `type` of an `Any` has an unknown type.
_type_of: Callable[[object], type[object]] = type
_MAX_PLAIN_MEMBERS: Final = 16
_MAX_PLAIN_LEVELS: Final = 3
_MAX_PLAIN_CHARACTERS: Final = 1_000
# How far behind the limit a text is searched, to recognize a secret that the limit cuts in two.
_LOOK_AHEAD_CHARACTERS: Final = 512
_BYTES_PER_ITEM: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """Copies any value to JSON without secrets and of limited size."""

    keep_inputs: bool = True
    """Whether to record the inputs of tools, or only their type and size."""
    max_text_characters: int = 2_000
    max_items: int = 1_000
    """The maximum number of nested values in one value."""
    max_total_characters: int = 20_000
    """The maximum number of characters in one value."""

    def value(self, value: object) -> JsonValue:
        return self.sized_value(value)[0]

    def sized_value(self, value: Any) -> tuple[JsonValue, int, bool]:
        """The redacted value, about how many bytes of memory it takes, and whether nothing was
        removed or cut."""
        if _type_of(value) is dict:
            plain = self._copy_if_plain(value, _MAX_PLAIN_LEVELS)
            if plain is not None:
                copy, items, characters = plain
                if items < self.max_items and characters < self.max_total_characters:
                    return copy, (1 + items) * _BYTES_PER_ITEM + characters, True
        walk = _Walk(self)
        redacted = walk.value(value, 0)
        characters = self.max_total_characters - walk.characters_left
        size = (self.max_items - walk.items_left) * _BYTES_PER_ITEM + characters
        return redacted, size, walk.is_exact

    def _copy_if_plain(
        self, members: dict[Any, Any], levels: int
    ) -> tuple[JsonObject, int, int] | None:
        """A copy of an object with a few short members and no secret, of which nothing is removed,
        as most inputs and results are, with the number of its members and characters; None if
        `_Walk` has to look at it."""
        if len(members) > _MAX_PLAIN_MEMBERS:
            return None
        copy: JsonObject = {}
        items, characters = len(members), 0
        for key, value in members.items():
            kind = _type_of(value)
            if kind is int:
                if not -_MAX_PLAIN_INTEGER < value < _MAX_PLAIN_INTEGER:
                    return None
            elif kind is str:
                size = len(value)
                is_short = size <= self.max_text_characters and size <= _MAX_PLAIN_CHARACTERS
                if not is_short or remove_secrets(value) != value:
                    return None
                characters += size
            elif kind is dict and levels:
                nested = self._copy_if_plain(value, levels - 1)
                if nested is None:
                    return None
                value = nested[0]
                items += nested[1]
                characters += nested[2]
            elif kind is not bool and value is not None:
                return None
            if _type_of(key) is not str or len(key) > _MAX_CACHED_KEY_CHARACTERS:
                return None
            if _read_short_key(key) != (key, False):
                return None
            characters += len(key)
            copy[key] = value
        return copy, items, characters

    def text(self, text: str) -> str:
        return _truncate(text, self.max_text_characters)

    def input(self, value: object) -> JsonValue:
        """The redacted input of a tool, or a note if inputs are not recorded."""
        return (
            self.value(value) if self.keep_inputs else f"[input not kept: {_describe_kind(value)}]"
        )


class _Walk:
    """One pass over one value; stops when the limits are reached."""

    def __init__(self, rules: Redaction) -> None:
        self._max_text_characters = rules.max_text_characters
        self.items_left = rules.max_items
        self.characters_left = rules.max_total_characters
        self.is_exact = True

    def value(self, value: object, depth: int) -> JsonValue:
        self.items_left -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (int, float)):
            number = _format_number(value)
            self.is_exact = self.is_exact and number is value
            return number
        if depth >= _MAX_DEPTH:
            self.is_exact = False
            return f"[{_describe_kind(value)}, too deep to be kept]"
        if isinstance(value, (dict, Mapping)):
            return self._members(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("list[object] | tuple[object, ...]", value), depth)
        self.is_exact = False
        return f"[{_describe_kind(value)}]"

    def _members(self, members: Mapping[object, object], depth: int) -> JsonValue:
        redacted: dict[str, JsonValue] = {}
        for count, (key, value) in enumerate(members.items()):
            if self.items_left <= 0 or self.characters_left <= 0:
                self.is_exact = False
                redacted["…"] = f"[{len(members) - count:,} more members]"
                break
            name = key if isinstance(key, str) else str(key)
            short_name, is_secret = _read_key(name)
            self.characters_left -= len(short_name)
            if short_name in redacted:
                # Two long keys with the same beginning; keep both.
                short_name = f"{short_name} ({count})"
            if short_name != key:
                self.is_exact = False
            if is_secret and _is_hidden(name, value):
                self.is_exact = False
                self.items_left -= 1
                redacted[short_name] = REDACTED
            elif type(value) is int and -_MAX_PLAIN_INTEGER < value < _MAX_PLAIN_INTEGER:
                # Most members: the call would take most of their time.
                self.items_left -= 1
                redacted[short_name] = value
            else:
                redacted[short_name] = self.value(value, depth + 1)
        return redacted

    def _items(self, items: list[object] | tuple[object, ...], depth: int) -> JsonValue:
        redacted: list[JsonValue] = []
        for count, item in enumerate(items):
            if self.items_left <= 0 or self.characters_left <= 0:
                self.is_exact = False
                redacted.append(f"[{len(items) - count:,} more items]")
                break
            redacted.append(self.value(item, depth + 1))
        return redacted

    def _text(self, text: str) -> str:
        limit = self._max_text_characters
        if self.characters_left < limit:
            limit = max(0, self.characters_left)
        redacted = _truncate(text, limit)
        self.characters_left -= len(redacted)
        if redacted is not text and redacted != text:
            self.is_exact = False
        return redacted


def _read_key(key: str) -> tuple[str, bool]:
    """The key without secrets and truncated, and whether its value is a secret."""
    # Most keys are short and occur many times, so only short keys are cached.
    return _read_short_key(key) if len(key) <= _MAX_CACHED_KEY_CHARACTERS else _read_any_key(key)


def _read_any_key(key: str) -> tuple[str, bool]:
    return _truncate(key, _MAX_KEY_CHARACTERS), is_secret_key(key)


_read_short_key = lru_cache(maxsize=4096)(_read_any_key)


def _is_hidden(key: str, value: object) -> bool:
    # `None` and booleans do not contain a secret.
    return value is not None and not isinstance(value, bool) and not is_amount(key, value)


def _truncate(text: str, limit: int) -> str:
    if len(text) <= limit:
        return remove_secrets(text)
    clean = remove_secrets(text[: limit + _LOOK_AHEAD_CHARACTERS])
    head = clean[: max(0, min(limit, len(clean) - _LOOK_AHEAD_CHARACTERS))]
    return f"{head}… [{len(text):,} characters]"


def _format_number(value: float | None) -> JsonValue:
    """The number as JSON, or as text if JSON cannot represent it."""
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
    """Foreign text as one printable line without secrets, for a log message."""
    # Truncate before the other steps, because the text may be megabytes long. Longer than the
    # result, because whitespace is collapsed.
    head = remove_secrets(text[: 4 * _MAX_LINE_CHARACTERS])
    line = " ".join("".join(char if char.isprintable() else " " for char in head).split())
    is_whole = len(line) <= _MAX_LINE_CHARACTERS and len(text) <= 4 * _MAX_LINE_CHARACTERS
    return line if is_whole else f"{line[: _MAX_LINE_CHARACTERS - 1]}…"
