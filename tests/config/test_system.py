"""A whole document: what it becomes, everything that is wrong with it, and what is documented."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nacre.config.code_mode import LIMITS
from nacre.config.system import problems_in, read_system, system_config_from
from nacre.config.validation import Setting, list_settings
from nacre.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ENVIRONMENT = {"HOME": "/home/ada"}
FOLDER = Path("/etc/nacre")

DEFAULTS_IN_WORDS = {
    "models.providers.<name>.api": "by its name",
    "models.providers.<name>.models[].name": "its id",
    "agents.list[].name": "its id",
}


def problems_of(document: Mapping[str, object], **environment: str) -> list[str]:
    found = problems_in(document, environment={**ENVIRONMENT, **environment}, folder=FOLDER)
    return [str(problem) for problem in found]


def test_an_empty_document_has_one_agent_and_an_embedded_model() -> None:
    config = system_config_from({}, environment=ENVIRONMENT, folder=FOLDER)

    assert (config.agents.ids, config.agents.default_id) == (("main",), "main")
    assert config.agents.agent("main").model == "demo/demo"
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 18789)
    assert config.storage.url == "sqlite:////home/ada/.local/share/nacre/nacre.db"
    assert (config.mcp_servers, config.plugins.paths, config.queue.mode) == ((), (), "steer")


def test_the_first_fault_is_raised_and_all_are_collected() -> None:
    document = {
        "gateway": {"port": 99999, "maxBodyBytes": "much"},
        "messages": {"queue": {"mode": "later", "cap": 0}},
        "mcp": {"servers": {"a": {"command": 1}, "b": {}, "c": {"command": "uvx"}}},
        "tools": {"codeMode": {"timeoutMs": "soon"}, "toolSearch": 3, "fs": {"ask": True}},
    }

    assert problems_of(document) == [
        '`tools.codeMode.timeoutMs` is "soon"; allowed: whole numbers from 100 to 60000',
        "`tools.toolSearch` is a number; allowed: true, false and an object",
        '`tools.fs.ask` is true; allowed: "writes", "always", "never"',
        "`mcp.servers.a.command` is a number; allowed: text",
        '`messages.queue.mode` is "later"; allowed: "steer", "followup", "collect"',
        "`messages.queue.cap` is 0; allowed: whole numbers from 1 to 1000",
        "`gateway.port` is 99999; allowed: whole numbers from 0 to 65535",
        '`gateway.maxBodyBytes` is "much"; allowed: whole numbers from 1024 to 1073741824',
        "`mcp.servers.b` has neither `command` nor `url`; a server has one of them",
    ]
    with pytest.raises(ConfigError, match="timeoutMs"):
        system_config_from(document, environment=ENVIRONMENT, folder=FOLDER)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"gatway": {}}, "`gatway` is not a section of a configuration; did you mean `gateway`?"),
        (
            {"gateway": {"prt": 1}},
            '`gateway` has the unknown key "prt"; did you mean `port`?',
        ),
        (
            {"gateway": {"auth": {"tokenfile": "x"}}},
            '`gateway.auth` has the unknown key "tokenfile"; did you mean `tokenFile`?',
        ),
        (
            {"messages": {"queue": {"q": None}}},
            '`messages.queue` has the unknown key "q"; known: mode, debounceMs, cap, drop',
        ),
        (
            {"agents": {"list": [{"id": "a", "maxStep": 3}]}},
            '`agents.list[0]` has the unknown key "maxStep"; did you mean `maxSteps`?',
        ),
        (
            {"agents": {"a": {"tools": {"web": {"fetsh": {}}}}}},
            '`agents.a.tools.web` has the unknown key "fetsh"; did you mean `fetch`?',
        ),
        (
            {"models": {"providers": {"openai": {"key": "x"}}}},
            '`models.providers.openai` has the unknown key "key"; did you mean `apiKey`?',
        ),
        (
            {"plugins": {"entries": {"w": {"enable": True}}}},
            '`plugins.entries.w` has the unknown key "enable"; did you mean `enabled`?',
        ),
        ({"agents": {"defaults": {"id": "a"}}}, '`agents.defaults` has the unknown key "id"'),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    document: Mapping[str, object], problem: str
) -> None:
    (found,) = problems_of(document)
    assert found.startswith(problem)


@pytest.mark.parametrize("section", ["models", "agents", "tools", "mcp", "gateway", "storage"])
def test_a_section_that_is_no_object_is_one_problem(section: str) -> None:
    assert problems_of({section: [1]}) == [f"`{section}` is a list; allowed: an object"]


def test_a_schema_for_editors_may_stand_at_the_top() -> None:
    assert problems_of({"$schema": "https://example.org/nacre.json"}) == []


def test_servers_may_stand_where_other_clients_have_them_but_not_in_both_places() -> None:
    server = {"command": "uvx"}
    config = system_config_from(
        {"mcpServers": {"git": server}}, environment=ENVIRONMENT, folder=FOLDER
    )
    assert [server.name for server in config.mcp_servers] == ["git"]
    assert problems_of({"mcpServers": {"a": server}, "mcp": {"servers": {"b": server}}}) == [
        "`mcpServers` is beside `mcp.servers`; keep the servers in one of the two"
    ]


def test_two_servers_that_would_have_one_name_are_refused() -> None:
    servers = {"my git": {"command": "a"}, "my:git": {"command": "b"}}
    assert problems_of({"mcp": {"servers": servers}}) == [
        "`mcp.servers[\"my:git\"]` would be called 'my-git' as another server is"
    ]


def test_no_secret_is_in_the_representation_of_a_configuration() -> None:
    document = {
        "models": {
            "providers": {
                "openai": {"apiKey": "plain-secret", "headers": {"x-org": "header-secret"}},
                "anthropic": {"apiKey": "${KEY}"},
                "own": {"baseUrl": "https://ada:url-secret@models.example/v1?key=query-secret"},
            }
        },
        "gateway": {"auth": {"token": "token-secret-0123"}},
        "storage": {"url": "postgresql://ada:url-secret@db/nacre"},
        "plugins": {"entries": {"w": {"config": {"password": "plugin-secret"}}}},
        "mcp": {"servers": {"git": {"command": "x", "env": {"TOKEN": "mcp-secret"}}}},
    }
    environment = {**ENVIRONMENT, "KEY": "variable-secret"}
    config = system_config_from(document, environment=environment, folder=FOLDER)

    assert config.models.providers["anthropic"].api_key == "variable-secret"
    assert "secret" not in repr(config)


def test_what_has_no_effect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    document: Mapping[str, Any] = {"mcp": {"servers": {"git": {"command": "x", "headers": {}}}}}
    with caplog.at_level(logging.WARNING):
        system_config_from(document, environment=ENVIRONMENT, folder=FOLDER)
    assert "`mcp.servers.git.headers` has no effect" in caplog.text


CLAMPED: Mapping[str, Any] = {
    "tools": {
        "codeMode": {"enabled": True, "timeoutMs": 5, "maxOutputBytes": 2048},
        "toolSearch": {"enabled": False, "maxSearchLimit": 99},
    },
    "agents": {
        "list": [{"id": "a", "tools": {"codeMode": {"maxSearchLimit": 0}}}],
        "b": {"tools": {"codeMode": {"searchDefaultLimit": 40, "maxSearchLimit": 30}}},
    },
}
CLAMPS = [
    "`tools.codeMode.timeoutMs` is 5; 100 is used",
    "`tools.toolSearch.maxSearchLimit` is 99; 50 is used",
    "`agents.list[0].tools.codeMode.maxSearchLimit` is 0; 1 is used",
    "`agents.b.tools.codeMode.searchDefaultLimit` is 40; 30 is used (`maxSearchLimit`)",
]


def test_every_number_that_is_clamped_is_named_once_with_what_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        config = system_config_from(CLAMPED, environment=ENVIRONMENT, folder=FOLDER)
    assert sorted(caplog.messages) == sorted(CLAMPS)
    a, b = (config.agents.agent(name).tools.code_mode for name in "ab")
    assert (a.timeout_ms, a.max_output_bytes, a.max_search_limit) == (100, 2048, 1)
    assert (b.timeout_ms, b.search_default_limit) == (100, 30)


def test_numbers_at_their_limits_are_not_warned_of() -> None:
    settings = {limit.key: limit.most for limit in LIMITS.values()}
    found = read_system(
        {"tools": {"codeMode": {"enabled": True, **settings}}},
        environment=ENVIRONMENT,
        folder=FOLDER,
    )
    assert (found.problems, found.warnings) == ((), ())


# What the page says.


def settings() -> list[Setting]:
    """Those that are on the page: other pages have those of MCP servers and of both modes, and
    an agent has the settings of `agents.defaults` and `tools`."""
    found = list_settings({"HOME": "~"})
    elsewhere = ("mcp.servers.<", "mcpServers.<", "tools.codeMode.", "tools.toolSearch.")
    return [
        setting
        for path, setting in found.items()
        if not path.startswith((*elsewhere, "agents.<", "agents.list[].tools."))
        and path.replace("agents.list[]", "agents.defaults") not in {*found} - {path}
    ]


def rows() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| .+ \|$", PAGE.read_text("utf-8"), re.M)
    return {path: (plain(default), plain(allowed)) for path, default, allowed in rows}


def plain(text: str) -> str:
    return text.replace("`", "")


def shown_default(setting: Setting) -> str:
    default = setting.default
    is_whole = isinstance(default, float) and default.is_integer()
    return DEFAULTS_IN_WORDS.get(setting.path) or json.dumps(
        int(default) if is_whole and isinstance(default, float) else default
    )


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.path)
def test_every_setting_is_documented_with_its_default_and_what_is_allowed(setting: Setting) -> None:
    if setting.path == "$schema":
        assert "`$schema`" in PAGE.read_text("utf-8")
        return
    assert rows()[setting.path] == (shown_default(setting), plain(setting.allowed))


def test_no_setting_is_documented_that_is_none() -> None:
    assert set(rows()) - {setting.path for setting in settings()} == set()
