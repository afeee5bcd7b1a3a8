"""Secrets are removed and sizes are limited in logged values, text and log lines."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.telemetry import Redaction, redaction
from nacre.telemetry.redaction import format_log_line, is_amount, is_secret_key, remove_secrets

JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=100),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=100), inner),
)


def test_a_plain_value_is_kept_as_it_is_in_a_copy() -> None:
    value: JsonObject = {"title": "Fix it", "labels": ["a", "b"], "n": 1.5, "ok": True, "no": None}
    kept = Redaction().value(value)
    assert kept == value
    assert isinstance(kept, dict)
    assert kept["labels"] is not value["labels"]


def test_members_with_secret_names_are_hidden_at_any_level_whatever_they_hold() -> None:
    value: JsonObject = {
        "user": "ann",
        "auth": {"a": 1},
        "list": [{"apiKey": ["x"], "password": 1234}],
        "clientSecret": "",
    }
    assert Redaction().value(value) == {
        "user": "ann",
        "auth": "[redacted]",
        "list": [{"apiKey": "[redacted]", "password": "[redacted]"}],
        "clientSecret": "[redacted]",
    }


def test_whether_there_is_a_secret_and_how_many_tokens_there_are_is_kept() -> None:
    value: JsonObject = {"token": None, "password": True, "inputTokens": 512}
    assert Redaction().value(value) == value


def test_secrets_in_text_and_in_names_are_replaced() -> None:
    secret = "ghp_abcdefghijklmnopqrst"
    value: JsonObject = {"note": f"use {secret}", secret: 1}
    assert Redaction().value(value) == {"note": "use [redacted]", "[redacted]": 1}


def test_long_text_is_shortened_and_says_how_long_it_was() -> None:
    kept = Redaction(max_text_characters=10).text("x" * 1234)
    assert kept == "xxxxxxxxxx… [1,234 characters]"


def test_text_of_just_the_allowed_length_is_whole() -> None:
    assert Redaction(max_text_characters=10).text("0123456789") == "0123456789"


def test_a_secret_is_not_shown_in_part_where_text_is_cut() -> None:
    text = f"{'x' * 90} ghp_abcdefghijklmnopqrstuvwxyz {'y' * 5000}"
    kept = Redaction(max_text_characters=100).text(text)
    assert "ghp_" not in kept
    assert "abc" not in kept


def test_a_secret_behind_others_that_shrank_is_not_shown_in_part() -> None:
    secrets = " ".join(f"ghp_{letter * 296}" for letter in "abcdefgh")
    for limit in range(50, 400):
        assert "ghp_" not in Redaction(max_text_characters=limit).text(secrets)


def test_a_large_value_says_what_is_missing_on_every_level() -> None:
    value: JsonObject = {"rows": [*range(100)], "after": "x"}
    kept = Redaction(max_items=10).value(value)
    assert kept == {"rows": [*range(8), "[92 more items]"], "…": "[1 more members]"}


def test_much_text_in_small_parts_is_bounded_in_sum() -> None:
    value: JsonValue = ["y" * 100 for _ in range(1_000)]
    kept = Redaction(max_total_characters=1_000).value(value)
    assert isinstance(kept, list)
    assert kept[-1] == "[990 more items]"
    assert len(encode_json(kept)) < 2_000


def test_long_names_are_shortened_and_none_hides_another() -> None:
    value: JsonObject = {f"{'k' * 5_000}{number}": number for number in range(3)}
    kept = Redaction().value(value)
    assert isinstance(kept, dict)
    assert [*kept.values()] == [0, 1, 2]
    assert max(map(len, kept)) < 300


def test_depth_is_bounded_and_says_what_was_there() -> None:
    value: JsonValue = ["bottom"]
    for _ in range(5_000):
        value = [value]
    assert b"[list of 1 items, too deep to be kept]" in encode_json(Redaction().value(value))


def test_a_value_that_is_part_of_itself_ends() -> None:
    value: list[JsonValue] = []
    value.append(value)
    assert b"too deep" in encode_json(Redaction().value(value))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        pytest.param(1 << 20_000, "[integer of 20,001 bits]", id="a huge integer"),
        (b"abc", "[3 bytes]"),
        (Path("x"), f"[{type(Path('x')).__name__}]"),
        ((1, {2: 3}), [1, {"2": 3}]),
        (MappingProxyType({"password": "x", "a": 1}), {"password": "[redacted]", "a": 1}),
    ],
)
def test_what_json_cannot_hold_is_told_in_words(value: object, kept: JsonValue) -> None:
    assert Redaction().value(value) == kept


def test_inputs_that_are_not_kept_leave_a_note_of_kind_and_size() -> None:
    redaction = Redaction(keep_inputs=False)
    assert redaction.input({"a": 1, "b": 2}) == "[input not kept: object with 2 members]"
    assert redaction.input("hello") == "[input not kept: text of 5 characters]"
    assert redaction.value({"a": 1}) == {"a": 1}


def test_inputs_that_are_kept_are_redacted() -> None:
    assert Redaction().input({"password": "x", "a": 1}) == {"password": "[redacted]", "a": 1}


@given(JSON_VALUES)
def test_what_comes_out_is_always_json(value: JsonValue) -> None:
    encode_json(Redaction(max_items=20, max_total_characters=50).value(value))


@given(JSON_VALUES)
def test_what_was_redacted_stays_the_same_when_redacted_again(value: JsonValue) -> None:
    once = Redaction().value(value)
    assert encode_json(Redaction().value(once)) == encode_json(once)


def test_the_size_grows_with_what_is_kept() -> None:
    redaction = Redaction()
    _, small, _ = redaction.sized_value({"a": 1})
    _, large, _ = redaction.sized_value({"a": "x" * 2_000, "b": [*range(100)]})
    _, bounded, _ = redaction.sized_value(["x" * 2_000] * 100_000)
    assert 0 < small < 500
    assert large > 2_000 + 100 * 50
    assert bounded < 200_000


@pytest.mark.parametrize(
    "key",
    [
        "password", "Passwd", "db_password", "userPassword", "PGPASSWORD", "pwd", "passphrase",
        "secret", "clientSecret", "client-secret", "SECRETS", "token", "access_token",
        "refreshToken", "X-Auth-Token", "session_token", "tokens", "token1", "api_key", "apikey",
        "apiKey", "X-API-Key", "OPENAI_API_KEY", "privateKey", "private_key_pem",
        "secretAccessKey", "authorization", "Proxy-Authorization", "cookie", "Set-Cookie",
        "credentials", "bearer", "jwt", "auth", "openaiKey", "OPENAI_KEY", "anthropic-key",
        "githubToken", "githubPat", "stripeKey", "stripeKeys", "myOpenaiKey2", "weatherKey",
        "serviceRoleKey", "x-functions-key", "Ocp-Apim-Subscription-Key", "licenseKey",
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_name(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "title", "key", "keys", "primaryKey", "sortKey", "cacheKey", "issueKey", "sessionKey",
        "idempotencyKey", "publicKey", "mapKey", "keyId", "openai", "github", "compat", "keyboard",
        "author", "authored_by", "tokenizer",
        "token_count", "max_tokens", "maxTokens", "nextPageToken", "page_token",
        "continuationToken", "secretary", "passed", "session", "sessionId", "toolId", "", "_",
        "密码", "__proto__",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret_is_kept(key: str) -> None:
    assert not is_secret_key(key)


def test_a_name_of_any_length_is_read_at_both_ends() -> None:
    filler = "x" * 1_000_000
    assert is_secret_key(f"{filler}_password")
    assert is_secret_key(f"password_{filler}")
    assert not is_secret_key(filler)


def test_a_number_of_tokens_is_no_token() -> None:
    assert is_amount("inputTokens", 512)
    assert not is_amount("inputTokens", ["a"])
    assert not is_amount("token", 123456)


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "a1B2c3D4e5"
AZURE_KEY = "a1B2c3D4+/" * 7 + "abcdef" + "+ASt" + "Q9w8E7=="
DISCORD_ID = "MTk4NjIyNDgzNDcxOTI1MjQ4"


@pytest.fixture
def alarm() -> Iterator[None]:
    """Stop what would take for ever; `re` looks for signals while it searches."""

    def stop(_signal: int, _frame: object) -> None:
        raise TimeoutError("the search does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"key sk-{LETTERS} end", "key [redacted] end"),
        (f"sk-proj-{LETTERS}", "[redacted]"),
        (f"use ghp_{LETTERS}.", "use [redacted]."),
        (f"github_pat_11A_{LETTERS}", "[redacted]"),
        ("xoxb-1234-5678-abcdef", "[redacted]"),
        ("id AKIAABCDEFGHIJKLMNOP", "id [redacted]"),
        (f"glpat-{LETTERS}", "[redacted]"),
        (f"AIza{LETTERS}", "[redacted]"),
        (f"npm_{LETTERS}", "[redacted]"),
        (f"sk_live_{LETTERS}", "[redacted]"),
        ("a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln b", "a [redacted] b"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [redacted]"),
        ("curl -H 'Bearer 0123456789'", "curl -H 'Bearer [redacted]'"),
        ("Set-Cookie: sid=abc; Path=/\nnext", "Set-Cookie: [redacted]\nnext"),
        ("postgres://me:hunter2@db:5432/x", "postgres://me:[redacted]@db:5432/x"),
        ("redis://:hunter2@cache", "redis://:[redacted]@cache"),
        ('{"password": "hunter2", "a": 1}', '{"password": "[redacted]", "a": 1}'),
        (r'{\"api_key\":\"hunter2\"}', r"{\"api_key\":\"[redacted]\"}"),
        ("const secret = 'hunter2';", "const secret = '[redacted]';"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=[redacted] psql"),
        ("login --password hunter2 now", "login --password [redacted] now"),
        ("mysql user=ann password=hunter2 db", "mysql user=ann password=[redacted] db"),
        ("DbPassword=hunter2;Server=a", "DbPassword=[redacted];Server=a"),
        ("client_secret=hunter2,scope=x", "client_secret=[redacted],scope=x"),
        ("pwd=hunter2 api_key=abcdef", "pwd=[redacted] api_key=[redacted]"),
        (f"aws_secret_access_key = {AWS_SECRET}", "aws_secret_access_key = [redacted]"),
        (f"secretAccessKey: {AWS_SECRET}", "secretAccessKey: [redacted]"),
        (f"AKIAABCDEFGHIJKLMNOP, {AWS_SECRET} x", "[redacted],  x"),
        (f"AccountName=a;AccountKey={AZURE_KEY};Suffix=b",
         "AccountName=a;AccountKey=[redacted];Suffix=b"),
        (f"key1 {AZURE_KEY}", "key1 [redacted]"),
        (f"https://api.telegram.org/bot123456789:AA{'Hx-5'*8}z/getMe",
         "https://api.telegram.org/bot[redacted]/getMe"),
        (f"SG.{LETTERS[:22]}.{LETTERS}abcdefg", "[redacted]"),
        (f"{DISCORD_ID}.GAbc12.{LETTERS}_-", f"{DISCORD_ID}.[redacted]"),
        (f"Authorization: Bot {DISCORD_ID}.GAbc12.{LETTERS}", "Authorization: Bot [redacted]"),
        (f"https://discord.com/api/webhooks/123456789012345678/{LETTERS}{LETTERS}",
         "https://discord.com/api/webhooks/123456789012345678/[redacted]"),
        (f"vault hvs.{LETTERS} x", "vault [redacted] x"),
        (f"dop_v1_{'0a'*32}", "[redacted]"),
        (f"pypi-AgEIcHlwaS5vcmc{LETTERS}", "[redacted]"),
        ("AGE-SECRET-KEY-1" + "QPZRY9X8GF" * 6, "[redacted]"),
        ("https://a.example/x?access_token=hunter2&b=1",
         "https://a.example/x?access_token=[redacted]&b=1"),
    ],
)  # fmt: skip
def test_a_known_secret_is_replaced_and_nothing_else(text: str, clean: str) -> None:
    assert remove_secrets(text) == clean


def test_a_private_key_is_replaced_up_to_its_end_or_the_end_of_the_text() -> None:
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    assert remove_secrets(f"a\n{begin}\nMIIE\n{end}\nb") == "a\n[redacted]\nb"
    assert remove_secrets(f"a\n{begin}\nMIIE\nAAAA") == "a\n[redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "task-management-for-everybody",
        "the token is in the password store",
        "const token = await tools.read({path})",
        "https://example.com:8080/path?page=2&sort=key",
        "PASSWORD=$SECRET run",
        "eyJhbGciOiJIUzI1NiJ9",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "İstanbul \ud800 password: ünïcode",
        "login(user=user, password=password, secret=args.secret)",
        "connect(password=os.environ['DB_PASSWORD'], api_key=get_key(1))",
        "if password==other: pass",
        "client(password=None, token=next_token, key=lambda row: row)",
        "url?password=%s&x=1 password={password} password=<yours> password=*** password=...",
        "max_token=100 page_token=abc sort_key=name primary_key=id",
        "sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709 in AKIA and ASIA",
        "sha512-" + "a1B2c3D4+/" * 8 + "abcdef==",
        "at 12345678:AA, and 10:30:AAAA",
        "pypi-server-for-the-whole-company-and-all-its-teams-in-one-place",
        "com.example.project.NetworkConfigurationFactory.create.connection",
        "SG.1 and hvs.2 and dop_v1_x",
        "age-secret-key-files are read by age",
        "see https://github.com/a/b/webhooks/12 and do_v1_migration",
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert remove_secrets(text) == text


@given(st.text())
def test_what_was_replaced_once_is_not_replaced_again(text: str) -> None:
    clean = remove_secrets(f"Bearer 0123456789 {text}")
    assert remove_secrets(clean) == clean


def test_each_marker_alone_makes_the_patterns_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def replace(text: str, _lowered: str) -> str:
        tried.append(text)
        return text

    monkeypatch.setattr(redaction, "_replace_secrets", replace)
    markers = redaction._MARKERS  # pyright: ignore[reportPrivateUsage]
    texts = [f"<<<{marker.upper()}>>>" for marker in markers]
    for text in [*texts, "plain text - of /some/ signs: a.b, c+d=e_f"]:
        remove_secrets(text)
    assert tried == texts


def test_every_pattern_needs_one_of_its_markers() -> None:
    # A marker that is missing would make its pattern dead: text that matches has to hold one.
    examples = [
        "-----BEGIN PRIVATE KEY-----", f"sk-{LETTERS}", f"rk_test_{LETTERS}", f"ghs_{LETTERS}",
        f"glpat-{LETTERS}", f"xoxp-{LETTERS}", "ASIAABCDEFGHIJKLMNOP", f"AIza{LETTERS}",
        f"hf_{LETTERS}", f"eyJ{LETTERS}.{LETTERS}", "Authorization=abcdef", "BEARER 0123456789",
        "Cookie: a=b", "ws://a:b@c", "passwd='x'", "?sig=abcdef", "&signature=abc",
        "passphrase=abc", "pwd=abc", "client_secret=abc", "bot_token=abc", "shared_key=abc",
        f"secret-access-key: {LETTERS}", f"{'a' * 76}+ABaabcdef",
        f"{'a' * 75}+ACDbabcdef",
        f"12345678:AA{LETTERS[:33]}", f"hvb.{LETTERS}", f"hvr.{LETTERS}", f"doo_v1_{'0a'*16}",
    ]  # fmt: skip
    assert [text for text in examples if remove_secrets(text) == text] == []


@pytest.mark.parametrize(
    "part",
    [
        "eyJ", "eyJ-", "sk-", "ghp_", "xoxb-", "AKIA", "bearer ", "authorization:", "cookie:",
        "://a:", "://", "-----BEGIN PRIVATE KEY-----", "-----END ", "password=", "password='",
        "&token", "?", "&a", "token ", " " * 8 + "token", "pwd=a.", "password=a", "secret=key_",
        "secret-access-key=", "AKIAABCDEFGHIJKLMNOP ", "a", "a+ASt", "1", "1:AA", "SG.a", "SG.",
        ".",
        "Maaaaaaaaaaaaaaaaaaaaaaa.aaaaaa.", "/webhooks/1", "hvs.", "dop_v1_", "pypi-Ag",
        "AGE-SECRET-KEY-",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("alarm")
def test_no_pattern_looks_at_the_same_text_again_and_again(part: str) -> None:
    # Quadratic work on a million characters takes minutes; linear work, less than a second.
    remove_secrets(part * (1_000_000 // len(part)))


def test_patterns_read_ascii_only() -> None:
    secrets = redaction._SECRETS  # pyright: ignore[reportPrivateUsage]
    compiled = [redaction._compile(it.pattern) for it in secrets]  # pyright: ignore[reportPrivateUsage]
    assert compiled
    assert all(pattern.flags & re.ASCII for pattern in compiled)


def test_what_would_begin_a_line_or_move_the_cursor_is_a_space() -> None:
    assert format_log_line("a\r\n2026 ERROR b\x1b[2J\u2028c") == "a 2026 ERROR b [2J c"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert format_log_line("x" * 500) == "x" * 500
    line = format_log_line("x" * 1_000_000)
    assert (len(line), line[-1]) == (500, "…")


def test_a_secret_that_can_be_told_is_left_out() -> None:
    assert "sk-ant-api03" not in format_log_line("refused sk-ant-api03-" + "a1B2" * 12)


_KEYS = st.sampled_from(["i", "title", "token", "password", "maxTokens", "", "x" * 90, "é"])
_MEMBERS: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=30)
    | st.sampled_from(["sk-proj-" + "a1B2" * 12, "Bearer abcdefghijklmnop", "x" * 1_200, 1 << 53]),
    lambda inner: st.dictionaries(st.text(max_size=8) | _KEYS, inner, max_size=20),
)
_PLAIN_MEMBERS = st.dictionaries(st.text(max_size=8) | _KEYS, _MEMBERS, max_size=20)


@given(
    members=_PLAIN_MEMBERS,
    rules=st.builds(
        Redaction,
        max_text_characters=st.integers(0, 2_000),
        max_items=st.integers(1, 20),
        max_total_characters=st.integers(0, 3_000),
    ),
)
def test_a_plain_object_is_redacted_as_one_inside_of_another(
    members: JsonObject, rules: Redaction
) -> None:
    redacted, size, is_exact = rules.sized_value(members)
    # An object of another type is never taken for a plain one.
    assert (redacted, size, is_exact) == rules.sized_value(MappingProxyType(members))
    assert redacted is not members
    assert is_exact == (redacted == members)


def test_a_plain_object_is_copied_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(redaction, "_Walk")
    value: JsonObject = {"i": 1, "title": "Fix it", "ok": {"yes": True}, "no": None}
    assert Redaction().sized_value(value) == (value, 6 * 64 + 19, True)
