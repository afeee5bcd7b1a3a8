"""`models`: how providers are reached, where their keys come from, and which models there are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nacre.config.models import ModelConfig, ProviderConfig
from nacre.config.system import read_system
from nacre.errors import MissingReferenceError


def read(
    providers: Mapping[str, Any], *, folder: Path = Path("/etc"), **environment: str
) -> tuple[Mapping[str, ProviderConfig], list[str]]:
    found = read_system(
        {"models": {"providers": providers}}, environment=environment, folder=folder
    )
    return found.config.models.providers, [str(problem) for problem in found.problems]


def test_known_providers_need_no_entry() -> None:
    providers, problems = read({}, OPENAI_API_KEY="a", ANTHROPIC_API_KEY="b", GEMINI_API_KEY="c")

    assert {name: (each.api, each.api_key) for name, each in providers.items()} == {
        "openai": ("openai-responses", "a"),
        "anthropic": ("anthropic-messages", "b"),
        "google": ("google-generative-ai", "c"),
        "demo": ("demo", ""),
    }
    assert problems == []


def test_a_server_of_ones_own_speaks_chat_completions_and_gets_no_key_of_others() -> None:
    providers, problems = read({"local": {"baseUrl": "http://[::1]:8080/v1/"}}, OPENAI_API_KEY="a")

    assert providers["local"] == ProviderConfig(
        name="local", api="openai-completions", base_url="http://[::1]:8080/v1"
    )
    assert problems == []


def test_a_known_provider_behind_a_proxy_gets_its_key() -> None:
    providers, _ = read({"openai": {"baseUrl": "https://proxy.example"}}, OPENAI_API_KEY="a")
    assert providers["openai"].api_key == "a"


def test_a_whole_entry() -> None:
    entry = {
        "api": "anthropic-messages",
        "baseUrl": "https://${HOST}/v1",
        "apiKey": "${KEY}",
        "headers": {"x-org": "${ORG:-none}"},
        "timeoutSeconds": 5,
        "maxRetries": 0,
        "models": [
            {"id": "a/b", "contextWindow": 9000.0, "maxTokens": 10},
            {"id": "c", "name": "C"},
        ],
    }
    providers, problems = read({"own": entry}, HOST="x.example", KEY="k")

    assert problems == []
    assert providers["own"] == ProviderConfig(
        name="own",
        api="anthropic-messages",
        base_url="https://x.example/v1",
        api_key="k",
        headers={"x-org": "none"},
        timeout_seconds=5,
        max_retries=0,
        models={
            "a/b": ModelConfig(id="a/b", name="a/b", context_tokens=9000, max_output_tokens=10),
            "c": ModelConfig(id="c", name="C"),
        },
    )


WRONG_ENTRIES: list[tuple[Mapping[str, Any], str]] = [
    ({}, "needs `baseUrl`, or `api`: only openai, anthropic, google, demo are known by"),
    ({"api": "openai"}, '.api` is "openai"; allowed: "openai-responses", "openai-completions"'),
    ({"baseUrl": "localhost:80"}, ".baseUrl` is not a provider address; allowed: an http://"),
    ({"baseUrl": "${URL}"}, ".baseUrl` uses the environment variable URL, which is not set"),
    ({"api": "demo", "apiKey": 7}, ".apiKey` is a number; allowed: text, ${NAME}"),
    ({"api": "demo", "apiKey": "a\nb"}, ".apiKey` gives a secret that no header can carry"),
    (
        {"api": "demo", "headers": {"a": "b\r\nc"}},
        ".headers.a` has characters that a header cannot have",
    ),
    ({"api": "demo", "models": {}}, ".models` is an object; allowed: a list of models"),
    ({"api": "demo", "models": [{}]}, ".models[0].id` is missing"),
    ({"api": "demo", "models": [{"id": ""}]}, '.models[0].id` is ""; allowed: the id by which'),
    ({"api": "demo", "models": [3]}, ".models[0]` is a number; allowed: an object"),
    (
        {"api": "demo", "models": [{"id": "a"}, {"id": "a"}]},
        '.models[1].id` is "a", as another model has it',
    ),
    ({"api": "demo", "timeoutSeconds": float("nan")}, ".timeoutSeconds` is NaN; allowed"),
    ({"api": "demo", "maxRetries": True}, ".maxRetries` is true; allowed: whole numbers"),
]


@pytest.mark.parametrize(("entry", "problem"), WRONG_ENTRIES)
def test_what_is_not_allowed_is_named(entry: Mapping[str, Any], problem: str) -> None:
    _, problems = read({"own": entry})
    assert problem in problems[0]
    assert problems[0].startswith("`models.providers.own")


def test_a_provider_whose_name_no_model_could_have_is_refused() -> None:
    _, problems = read({"a/b": {"baseUrl": "http://x"}})
    assert problems == [
        '`models.providers["a/b"]` is not a provider name; '
        "allowed: 1 to 64 characters, no spaces and slashes"
    ]


def test_no_secret_is_in_a_problem() -> None:
    entry = {"baseUrl": "ftp://sesame@x", "apiKey": "sesame é", "headers": {"a": "sesame\n"}}
    _, problems = read({"own": entry})
    assert len(problems) == 3
    assert not any("sesame" in problem for problem in problems)


# Keys in files


def test_a_key_is_read_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sesame\r\n")
    file.chmod(0o600)
    found = read_system(
        {"models": {"providers": {"openai": {"apiKeyFile": "key"}}}},
        environment={"OPENAI_API_KEY": "other"},
        folder=tmp_path,
    )
    assert found.config.models.providers["openai"].api_key == "sesame"
    assert (found.problems, found.warnings) == ((), ())


def test_a_key_that_everybody_may_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sesame", encoding="utf-8")
    file.chmod(0o644)
    found = read_system(
        {"models": {"providers": {"openai": {"apiKeyFile": "~/key"}}}},
        environment={"HOME": str(tmp_path)},
        folder=Path("/etc"),
    )
    assert found.config.models.providers["openai"].api_key == "sesame"
    assert found.warnings == (
        f"`models.providers.openai.apiKeyFile` names {file}, which everybody on this machine may "
        "read; `chmod 600` it",
    )


def test_a_key_file_that_is_not_there_may_be_elsewhere(tmp_path: Path) -> None:
    found = read_system(
        {"models": {"providers": {"openai": {"apiKeyFile": "key"}}}},
        environment={},
        folder=tmp_path,
    )
    (problem,) = found.problems
    assert isinstance(problem, MissingReferenceError)
    assert str(tmp_path / "key") in str(problem)


def test_a_key_and_a_file_for_it_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a", encoding="utf-8")
    _, problems = read({"openai": {"apiKey": "b", "apiKeyFile": "key"}}, folder=tmp_path)
    assert problems == [
        "`models.providers.openai` has both `apiKey` and `apiKeyFile`; write one of them"
    ]
