"""Secrets inside text: what is replaced, what stays, and that no text makes it slow."""

import re
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.telemetry import redaction as secret_text
from nacre.telemetry.redaction import remove_secrets

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


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
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert remove_secrets(text) == text


@given(st.text())
def test_what_was_replaced_once_is_not_replaced_again(text: str) -> None:
    clean = remove_secrets(f"Bearer 0123456789 {text}")
    assert remove_secrets(clean) == clean


def test_every_pattern_needs_one_of_its_markers() -> None:
    # A marker that is missing would make its pattern dead: text that matches has to hold one.
    examples = [
        "-----BEGIN PRIVATE KEY-----", f"sk-{LETTERS}", f"rk_test_{LETTERS}", f"ghs_{LETTERS}",
        f"glpat-{LETTERS}", f"xoxp-{LETTERS}", "ASIAABCDEFGHIJKLMNOP", f"AIza{LETTERS}",
        f"hf_{LETTERS}", f"eyJ{LETTERS}.{LETTERS}", "Authorization=abcdef", "BEARER 0123456789",
        "Cookie: a=b", "ws://a:b@c", "passwd='x'", "?sig=abcdef", "&signature=abc",
    ]  # fmt: skip
    assert [text for text in examples if remove_secrets(text) == text] == []


@pytest.mark.parametrize(
    "part",
    [
        "eyJ", "eyJ-", "sk-", "ghp_", "xoxb-", "AKIA", "bearer ", "authorization:", "cookie:",
        "://a:", "://", "-----BEGIN PRIVATE KEY-----", "-----END ", "password=", "password='",
        "&token", "?", "&a", "token ", " " * 8 + "token",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("alarm")
def test_no_pattern_looks_at_the_same_text_again_and_again(part: str) -> None:
    # Quadratic work on a million characters takes minutes; linear work, less than a second.
    remove_secrets(part * (1_000_000 // len(part)))


def test_patterns_read_ascii_only() -> None:
    secrets = secret_text._SECRETS  # pyright: ignore[reportPrivateUsage]
    assert all(secret.pattern.flags & re.ASCII for secret in secrets)
