"""Names of members that stand for secrets, in every spelling, and names that only look so."""

import pytest

from nacre.telemetry.redaction import is_amount, is_secret_key


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
