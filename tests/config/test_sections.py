"""`gateway`, `storage`, `messages` and `plugins`: what they become, and what they refuse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nacre.config.gateway import GatewayConfig
from nacre.config.plugins import PluginEntry, PluginsConfig
from nacre.config.sections import QueueConfig
from nacre.config.system import SystemConfig, read_system

FOLDER = Path("/etc/nacre")


def read(document: Mapping[str, Any], **environment: str) -> tuple[SystemConfig, list[str]]:
    found = read_system(document, environment={"HOME": "/home/ada", **environment}, folder=FOLDER)
    return found.config, [str(problem) for problem in found.problems]


# gateway


def test_a_whole_gateway() -> None:
    gateway = {
        "host": "0.0.0.0",
        "port": 0,
        "auth": {"mode": "token", "token": "${T}"},
        "maxBodyBytes": 4096,
        "maxConcurrentRuns": 2,
        "shutdownSeconds": 0.5,
        "corsOrigins": ["https://app.example:8080", "*"],
    }
    config, problems = read({"gateway": gateway}, T="sesame-0123456789")

    assert problems == []
    assert config.gateway == GatewayConfig(
        host="0.0.0.0",
        port=0,
        token="sesame-0123456789",
        max_body_bytes=4096,
        max_concurrent_runs=2,
        shutdown_seconds=0.5,
        cors_origins=("https://app.example:8080", "*"),
    )


def test_the_token_comes_from_its_variable_where_nothing_else_is_said() -> None:
    assert read({}, NACRE_GATEWAY_TOKEN="a")[0].gateway.token == "a"
    assert read({})[0].gateway.token == ""
    written = {"gateway": {"auth": {"token": "b"}}}
    assert read(written, NACRE_GATEWAY_TOKEN="a")[0].gateway.token == "b"


def test_the_token_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame-0123456789\n", encoding="utf-8")
    config, problems = read({"gateway": {"auth": {"tokenFile": str(file)}}})
    assert problems == []
    assert (config.gateway.token, config.gateway.token_file) == ("sesame-0123456789", file)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_without_a_token_this_machine_may_be_served(host: str) -> None:
    assert read({"gateway": {"host": host, "auth": {"mode": "none"}}})[1] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_without_a_token_no_other_machine_may_be_served(host: str) -> None:
    (problem,) = read({"gateway": {"host": host, "auth": {"mode": "none"}}})[1]
    assert problem.startswith(f'`gateway.auth.mode` is "none", but the gateway listens on {host}: ')


def test_named_tokens_have_a_token_of_their_own_and_scopes(tmp_path: Path) -> None:
    file = tmp_path / "ci"
    file.write_text("ci-0123456789abcdef\n", encoding="utf-8")
    file.chmod(0o600)
    ci = {"tokenFile": str(file), "scopes": ["read", "run"]}
    config, problems = read({"gateway": {"auth": {"tokens": {"ci": ci}}}})
    assert problems == []
    assert config.gateway.token_files == (file,)
    [named] = config.gateway.named_tokens
    assert (named.token, named.scopes) == ("ci-0123456789abcdef", {"read", "run"})
    assert "0123456789abcdef" not in repr(config.gateway)


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ({"ci": {"token": "short", "scopes": ["read"]}}, "`gateway.auth.tokens.ci` has 5 char"),
        ({"ci": {"scopes": ["read"]}}, "`gateway.auth.tokens.ci` has 0 characters"),
        ({"ci": {"token": "x" * 16, "scopes": []}}, "`gateway.auth.tokens.ci.scopes` "),
        ({"ci": {"token": "x" * 16, "scopes": ["write"]}}, "`gateway.auth.tokens.ci.scopes[0]` "),
        (
            {name: {"token": "x" * 16, "scopes": ["read"]} for name in ("a", "b")},
            "`gateway.auth.tokens.b` has the same token as `gateway.auth.tokens.a`",
        ),
    ],
)
def test_a_named_token_that_cannot_be_used_is_refused(tokens: object, problem: str) -> None:
    found = read({"gateway": {"auth": {"tokens": tokens}}})[1]
    assert found[0].startswith(problem)
    assert "xxxx" not in str(found)


def test_a_named_token_without_its_variable_has_one_problem() -> None:
    ci = {"token": "${CI_TOKEN}", "scopes": ["read"]}
    config, problems = read({"gateway": {"auth": {"tokens": {"ci": ci}}}})
    [problem] = problems
    assert problem.startswith("`gateway.auth.tokens.ci.token` uses the environment variable ")
    assert config.gateway.named_tokens == ()


def test_pages_of_any_origin_are_not_served_without_a_token() -> None:
    auth = {"mode": "none"}
    (problem,) = read({"gateway": {"auth": auth, "corsOrigins": ["*"]}})[1]
    assert problem.startswith('`gateway.corsOrigins` has "*", but `gateway.auth.mode` is "none"')
    assert read({"gateway": {"auth": auth, "corsOrigins": ["https://app.example"]}})[1] == []
    assert read({"gateway": {"corsOrigins": ["*"]}})[1] == []


@pytest.mark.parametrize(
    ("gateway", "problem"),
    [
        ({"host": "a b"}, '`gateway.host` is "a b"; allowed: an address or a host name'),
        ({"host": ""}, '`gateway.host` is ""; allowed: an address or a host name'),
        ({"corsOrigins": ["x.org"]}, '`gateway.corsOrigins[0]` is "x.org"; allowed: origins'),
        ({"corsOrigins": "*"}, '`gateway.corsOrigins` is "*"; allowed: a list of origins'),
        ({"auth": {"mode": "password"}}, '`gateway.auth.mode` is "password"; allowed: "token"'),
        ({"auth": {"token": "two words"}}, "`gateway.auth.token` gives a secret that no header"),
        ({"auth": {"token": "short"}}, "`gateway.auth.token` has 5 characters; a token needs at"),
        ({"port": 80.5}, "`gateway.port` is 80.5; allowed: whole numbers from 0 to 65535"),
    ],
)
def test_what_a_gateway_may_not_have(gateway: Mapping[str, Any], problem: str) -> None:
    (found,) = read({"gateway": gateway})[1]
    assert found.startswith(problem)


# storage


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("sqlite:///~/a.db", "sqlite:////home/ada/a.db"),
        ("sqlite:///data/a.db", "sqlite:////etc/nacre/data/a.db"),
        ("sqlite:////var/a.db", "sqlite:////var/a.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgres://u:${PW}@db/n", "postgresql://u:sesame@db/n"),
        ("postgresql:///n?host=/run", "postgresql:///n?host=/run"),
    ],
)
def test_the_address_of_a_database_is_made_whole(given: str, url: str) -> None:
    config, problems = read({"storage": {"url": given}}, PW="sesame")
    assert (config.storage.url, problems) == (url, [])


def test_data_lies_where_the_environment_says() -> None:
    config, _ = read({}, XDG_DATA_HOME="/data")
    assert config.storage.url == "sqlite:////data/nacre/nacre.db"
    assert config.agents.agent("main").workspace == Path("/data/nacre/workspace")


def test_an_unknown_database_is_refused_without_its_password() -> None:
    (problem,) = read({"storage": {"url": "mysql://u:sesame@h/d"}})[1]
    assert "sesame" not in problem
    assert "allowed: sqlite:///<path> and postgresql://" in problem


# messages


def test_a_whole_queue() -> None:
    queue = {"mode": "collect", "debounceMs": 0, "cap": 5, "drop": "summarize"}
    config, problems = read({"messages": {"queue": queue}})
    assert (config.queue, problems) == (
        QueueConfig(mode="collect", debounce_ms=0, cap=5, drop="summarize"),
        [],
    )


# plugins


def test_whole_plugins() -> None:
    plugins = {
        "enabled": False,
        "paths": ["./plugins/weather", "~/p", "${WHERE}/x"],
        "load": {"paths": ["/opt/p", "~/p"]},
        "entryPoints": False,
        "allow": ["weather"],
        "deny": ["*"],
        "entries": {
            "weather": {"enabled": False, "config": {"key": "${K}", "list": [1, {"a": "$${K}"}]}}
        },
    }
    config, problems = read({"plugins": plugins}, K="sesame", WHERE="/srv")

    assert problems == []
    assert config.plugins == PluginsConfig(
        is_enabled=False,
        paths=(
            Path("/etc/nacre/plugins/weather"),
            Path("/home/ada/p"),
            Path("/srv/x"),
            Path("/opt/p"),
        ),
        uses_entry_points=False,
        allow=("weather",),
        deny=("*",),
        entries={
            "weather": PluginEntry(
                is_enabled=False, config={"key": "sesame", "list": [1, {"a": "${K}"}]}
            )
        },
    )


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        ({"paths": ["a", 1]}, "`plugins.paths[1]` is a number; allowed: a path"),
        ({"paths": ["${NO}"]}, "`plugins.paths[0]` uses the environment variable NO"),
        ({"entries": {"w": True}}, "`plugins.entries.w` is true; allowed: an object"),
        ({"entries": {"w": {"config": []}}}, "`plugins.entries.w.config` is a list; allowed: an"),
        (
            {"entries": {"w": {"config": {"a": ["${NO}"]}}}},
            "`plugins.entries.w.config.a[0]` uses the environment variable NO",
        ),
        (
            {"entries": {"w": {"config": {"a": float("inf")}}}},
            "`plugins.entries.w.config` is not JSON: $.a",
        ),
    ],
)
def test_what_plugins_may_not_have(plugins: Mapping[str, Any], problem: str) -> None:
    (found,) = read({"plugins": plugins})[1]
    assert found.startswith(problem)
