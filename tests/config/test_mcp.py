"""`mcp.servers`: entries of every client, what is refused by path, and secrets that stay secret."""

import json
import logging
from pathlib import Path

import pytest

from nacre.config.mcp import mcp_servers_from, read_mcp_document
from nacre.config.mcp_entry import McpServerConfig
from nacre.errors import ConfigError
from nacre.json_types import JsonObject, JsonValue

ENVIRONMENT = {"TOKEN": "hunter2", "HOME": "/home/ada"}
WORKSPACE = Path("/projects/shop")


def servers_from(value: object, warnings: list[str] | None = None) -> list[McpServerConfig]:
    notes = [] if warnings is None else warnings
    servers = mcp_servers_from(value, environment=ENVIRONMENT, workspace=WORKSPACE, warnings=notes)
    assert warnings is not None or notes == []
    return servers


def server_from(entry: object) -> McpServerConfig:
    [server] = servers_from({"x": entry})
    return server


def warnings_of(entry: object) -> list[str]:
    warnings: list[str] = []
    servers_from({"x": entry}, warnings)
    return warnings


def refusal_of(value: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        servers_from(value, [])
    assert "hunter2" not in str(refusal.value)
    return str(refusal.value)


def refusal_of_entry(entry: object) -> str:
    return refusal_of({"x": entry})


def test_a_command_alone_is_a_server_with_all_defaults() -> None:
    assert server_from({"command": "npx"}) == McpServerConfig(
        name="x",
        transport="stdio",
        command="npx",
        args=(),
        env={},
        cwd=None,
        url="",
        headers={},
        timeout_seconds=60,
        startup_seconds=30,
        idle_seconds=600,
        allow=None,
        deny=(),
        require_approval=(),
        is_disabled=False,
        oauth=False,
        max_result_bytes=4_194_304,
    )


def test_every_key_of_ours_is_read() -> None:
    local: JsonObject = {
        "type": "stdio",
        "command": "${userHome}/bin/server",
        "args": ["--token", "${TOKEN}"],
        "env": {"A": "${TOKEN}", "PORT": 8080},
        "cwd": "${workspaceFolder}/sub",
        "timeoutSeconds": 5,
        "startupSeconds": 0.5,
        "idleSeconds": 60,
        "maxResultBytes": 2048,
        "allow": ["read_*"],
        "deny": ["read_all"],
        "requireApproval": ["read_secret"],
    }
    assert server_from(local) == McpServerConfig(
        name="x",
        transport="stdio",
        command="/home/ada/bin/server",
        args=("--token", "hunter2"),
        env={"A": "hunter2", "PORT": "8080"},
        cwd="/projects/shop/sub",
        timeout_seconds=5,
        startup_seconds=0.5,
        idle_seconds=60,
        max_result_bytes=2048,
        allow=("read_*",),
        deny=("read_all",),
        require_approval=("read_secret",),
        looked_up=("hunter2",),
    )
    remote: JsonObject = {
        "url": "https://example.com/mcp?key=${TOKEN}",
        "headers": {"Authorization": "Bearer ${env:TOKEN}"},
        "enabledTools": [],
        "disabledTools": ["b"],
        "requireApproval": True,
        "oauth": True,
    }
    assert server_from(remote) == McpServerConfig(
        name="x",
        transport="http",
        url="https://example.com/mcp?key=hunter2",
        headers={"Authorization": "Bearer hunter2"},
        allow=(),
        deny=("b",),
        require_approval=("*",),
        oauth=True,
        looked_up=("hunter2",),
    )


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://example.com/mcp"}, "http"),
        ({"url": "https://example.com/sse"}, "sse"),
        ({"url": "https://example.com/sse/?key=1"}, "sse"),
        ({"url": "https://example.com/sse", "type": "http"}, "http"),
        ({"url": "https://example.com/mcp", "type": "sse"}, "sse"),
        ({"url": "https://example.com/mcp", "type": "streamable-http"}, "http"),
        ({"serverUrl": "https://example.com/mcp", "transport": "streamableHttp"}, "http"),
        ({"command": "npx", "type": "stdio"}, "stdio"),
        ({"command": "npx", "url": None}, "stdio"),
    ],
)
def test_the_transport_is_named_or_follows_from_the_entry(
    entry: JsonObject, transport: str
) -> None:
    assert server_from(entry).transport == transport


def test_a_disabled_server_keeps_its_references_and_needs_no_variable() -> None:
    server = server_from({"url": "${MISSING}", "headers": {"A": "${MISSING}"}, "disabled": True})
    assert server.is_disabled
    assert server.headers == {"A": "${MISSING}"}
    assert repr(server).count("MISSING") == 0
    assert server_from({"command": "x", "enabled": False}).is_disabled


@pytest.mark.parametrize(
    "words",
    [
        ["nacre", "mcp"],
        ["/opt/bin/nacre", "mcp", "serve"],
        ["C:\\tools\\nacre.exe", "mcp"],
        ["uvx", "--from", "nacre", "nacre", "mcp"],
        ["python", "-m", "nacre.cli.main", "mcp"],
        ["python3.12", "-m", "nacre", "mcp"],
        ["uv", "--directory", "/x", "run", "/x/.venv/bin/nacre", "mcp"],
        ["env", "A=b", "nacre", "mcp"],
    ],
)
def test_nacre_is_never_a_server_of_its_own(words: list[str]) -> None:
    warnings: list[str] = []
    [server] = servers_from({"x": {"command": words[0], "args": words[1:]}}, warnings)
    assert server.is_disabled
    assert warnings == ["`mcp.servers.x` starts `nacre mcp` itself, so it is left out"]


@pytest.mark.parametrize(
    "words",
    [
        ["npx", "server-filesystem", "/home/ada/nacre", "mcp"],
        ["uvx", "mcp-server-git", "--repository", "nacre", "mcp"],
        ["uvx", "mcp-server-filesystem", "/home/ada/nacre", "mcp"],
        ["nacre", "exec", "mcp"],
        ["nacre-tools", "mcp"],
        ["nacre"],
    ],
)
def test_a_server_that_only_works_on_nacre_is_a_server(words: list[str]) -> None:
    [server] = servers_from({"x": {"command": words[0], "args": words[1:]}})
    assert not server.is_disabled


def test_a_name_with_spaces_gets_one_that_tools_can_be_owned_by() -> None:
    warnings: list[str] = []
    [server] = servers_from({" My Server: two\u2028": {"command": "x"}}, warnings)
    assert server.name == "My-Server-two"
    assert len(warnings) == 1


def test_two_names_that_become_one_are_refused() -> None:
    value = {"a b": {"command": "x"}, "a-b": {"command": "y"}}
    assert refusal_of(value) == "`mcp.servers.a-b` would be called 'a-b' as another server is"


@pytest.mark.parametrize("name", ["", " : ", "x" * 129])
def test_a_name_has_to_be_one(name: str) -> None:
    assert "is not a server name" in refusal_of({name: {"command": "x"}})


def test_prototype_names_are_names_like_others() -> None:
    names = ["__proto__", "constructor", "toString"]
    assert [it.name for it in servers_from({name: {"command": "x"} for name in names})] == names


@pytest.mark.parametrize(
    ("entry", "refusal"),
    [
        ("npx", "`mcp.servers.x` is a text; allowed: an object"),
        (
            {},
            "`mcp.servers.x` has neither `command` nor `url`; a server has one of them",
        ),
        (
            {"command": "npx", "url": "https://example.com"},
            "`mcp.servers.x` has both `command` and `url`; a server has one of them",
        ),
        ({"command": ["hunter2"]}, "`mcp.servers.x.command` is a list; allowed: text"),
        ({"command": ""}, "`mcp.servers.x.command` is empty; name a program"),
        (
            {"command": "npx", "args": "hunter2"},
            "`mcp.servers.x.args` is a text; allowed: a list of texts",
        ),
        (
            {"command": "npx", "args": ["a", 5]},
            "`mcp.servers.x.args[1]` is a number; allowed: text",
        ),
        (
            {"command": "npx", "args": ["${NO}"]},
            "`mcp.servers.x.args[0]` uses the environment variable NO, which is not set; "
            "set it, or write ${NO:-default}",
        ),
        (
            {"command": "a\0b"},
            "`mcp.servers.x.command` has a character that cannot be passed to a process",
        ),
        (
            {"command": "x", "env": {"A": "\ud800"}},
            "`mcp.servers.x.env.A` has a character that cannot be passed to a process",
        ),
        ({"command": "x", "env": {"A": True}}, "`mcp.servers.x.env.A` is true; allowed: text"),
        (
            {"command": "x", "env": {"A=B": ""}},
            "`mcp.servers.x.env` has a member that is not a valid variable name",
        ),
        (
            {"command": "x", "type": "ws"},
            '`mcp.servers.x.type` is \'ws\'; allowed: "stdio", "http" and "sse"',
        ),
        (
            {"command": "x", "type": "http"},
            "`mcp.servers.x` has the type 'http', so it needs `url`",
        ),
        (
            {"url": "ftp://hunter2"},
            "`mcp.servers.x.url` is not a server address; allowed: http:// and https:// URLs",
        ),
        (
            {"url": "https://[hunter2"},
            "`mcp.servers.x.url` is not a server address; allowed: http:// and https:// URLs",
        ),
        (
            {"url": "https://a.b", "headers": {"A": "hunter2\r\nB: c"}},
            "`mcp.servers.x.headers.A` has characters that a header cannot have: "
            "line ends, control or non-ASCII ones",
        ),
        (
            {"url": "https://a.b", "headers": {"A b": "c"}},
            "`mcp.servers.x.headers` has a member that is not a valid header name",
        ),
        (
            {"command": "x", "timeoutSeconds": 0},
            "`mcp.servers.x.timeoutSeconds` is 0; allowed: numbers from 0.1 to 86400",
        ),
        (
            {"command": "x", "idleSeconds": float("nan")},
            "`mcp.servers.x.idleSeconds` is NaN; allowed: numbers from 0.1 to 86400",
        ),
        (
            {"command": "x", "startupSeconds": True},
            "`mcp.servers.x.startupSeconds` is true; allowed: numbers from 0.1 to 86400",
        ),
        (
            {"command": "x", "disabled": "yes"},
            "`mcp.servers.x.disabled` is a text; allowed: true and false",
        ),
        (
            {"command": "x", "allow": ["a"], "enabledTools": ["b"]},
            "`mcp.servers.x` has both `allow` and `enabledTools`; write one of them",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(entry: object, refusal: str) -> None:
    assert refusal_of_entry(entry) == refusal


def test_servers_that_are_no_object_are_refused() -> None:
    assert refusal_of(["hunter2"]) == (
        "`mcp.servers` is a list; allowed: an object of MCP servers by name"
    )
    assert servers_from(None) == []


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("autoApprove", ["a"], ""),
        ("timeoutseconds", 5, "; did you mean `timeoutSeconds`?"),
        ("timeout", 5, "; write `timeoutSeconds`"),
    ],
)
def test_a_key_that_nobody_reads_is_reported(key: str, value: JsonValue, hint: str) -> None:
    assert warnings_of({"command": "x", key: value}) == [
        f"`mcp.servers.x.{key}` is not used by Nacre{hint}"
    ]


def test_a_key_of_the_other_transport_is_reported() -> None:
    assert warnings_of({"command": "x", "headers": {"A": "b"}}) == [
        "`mcp.servers.x.headers` has no effect on a server that is a command"
    ]
    assert warnings_of({"url": "https://a.b", "env": {"A": "b"}}) == [
        "`mcp.servers.x.env` has no effect on a server that is an URL"
    ]


@pytest.mark.parametrize("key", ["oauth", "auth"])
def test_a_registered_client_of_another_program_means_oauth_and_is_reported(key: str) -> None:
    warnings: list[str] = []
    [server] = servers_from({"x": {"url": "https://a.b", key: {"clientId": "hunter2"}}}, warnings)
    assert server.oauth
    assert warnings == [
        f"`mcp.servers.x.{key}.clientId` is not used: Nacre registers itself with the server"
    ]


def test_without_a_list_for_them_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        mcp_servers_from({"x": {"command": "x", "odd": 1}}, environment={})
    assert caplog.messages == ["`mcp.servers.x.odd` is not used by Nacre"]


def test_variables_of_a_file_are_taken_and_those_of_the_entry_win(tmp_path: Path) -> None:
    text = "# note\nexport A='from file'\nB=two # note\nC=${TOKEN}\n"
    (tmp_path / ".env").write_text(text, encoding="utf-8")
    entry = {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"B": "mine"}}
    [server] = mcp_servers_from({"x": entry}, environment={}, workspace=tmp_path)
    assert server.env == {"A": "from file", "B": "mine", "C": "${TOKEN}"}


def test_a_file_of_variables_that_is_missing_or_odd_is_refused(tmp_path: Path) -> None:
    def refusal() -> str:
        with pytest.raises(ConfigError) as caught:
            mcp_servers_from(
                {"x": {"command": "x", "envFile": ".env"}}, environment={}, workspace=tmp_path
            )
        return str(caught.value)

    assert "No such file" in refusal()
    (tmp_path / ".env").write_text("A\n", encoding="utf-8")
    assert refusal() == "`mcp.servers.x.envFile` names a file that has A without a value"


def test_neither_repr_nor_place_shows_a_secret() -> None:
    local = server_from({"command": "npx", "args": ["hunter2"], "env": {"A": "hunter2"}})
    remote = server_from(
        {
            "url": "https://ada:hunter2@example.com:8443/hunter2?k=hunter2",
            "headers": {"B": "hunter2"},
        }
    )
    assert "hunter2" not in repr([local, remote])
    assert (local.place, remote.place) == ("npx", "https://example.com:8443")


ENTRY: JsonObject = {"command": "npx", "args": ["-y", "server"]}


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": ENTRY}, "globalShortcut": ""},
        {"servers": {"a": ENTRY}, "inputs": [{"id": "token"}]},
        {"mcp": {"servers": {"a": ENTRY}}, "tools": {}},
        {"customizations": {"vscode": {"mcp": {"servers": {"a": ENTRY}}}}},
        {"a": ENTRY},
    ],
)
def test_servers_are_found_in_the_documents_of_every_client(document: JsonObject) -> None:
    assert read_mcp_document(json.dumps(document), path="f.json") == {"a": ENTRY}


def test_a_document_may_have_comments_and_trailing_commas() -> None:
    text = '// mine\n{"servers": {"a": {"command": "npx", /* x */ "args": ["-y", "server",],},},}'
    assert read_mcp_document(text, path="f.json") == {"a": ENTRY}


@pytest.mark.parametrize("name", ["servers", "mcp", "mcpServers", "command"])
def test_a_server_may_be_called_like_a_section(name: str) -> None:
    assert read_mcp_document(json.dumps({name: ENTRY}), path="f") == {name: ENTRY}
    document = {"mcpServers": {name: ENTRY}}
    assert read_mcp_document(json.dumps(document), path="f") == {name: ENTRY}


@pytest.mark.parametrize("text", ["{}", '{"mcpServers": {}}'])
def test_a_document_may_have_no_server(text: str) -> None:
    assert read_mcp_document(text, path="f.json") == {}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[]", "`f.json` is a list; allowed: an object"),
        ('{"tools": {}}', "`f.json` has no MCP servers; they stand under"),
        ('{"mcpServers": ["hunter2"]}', "`f.json: mcpServers` is a list; allowed: an object"),
        (
            '{"mcpServers": {}, "mcp": {"servers": {}}}',
            "`f.json` has servers in mcpServers and in mcp.servers; keep them in one",
        ),
    ],
)
def test_a_document_without_a_place_for_servers_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mcp_document(text, path="f.json")
    assert str(caught.value).startswith(refusal)


def test_a_server_that_is_null_does_not_hide_the_others_of_a_document() -> None:
    servers = read_mcp_document('{"a": null, "b": {"command": "x"}}', path="file")
    assert servers == {"a": None, "b": {"command": "x"}}


def test_what_references_were_replaced_by_is_kept_apart_but_not_folders() -> None:
    entry: JsonObject = {
        "command": "${userHome}/x",
        "args": ["--key=${TOKEN}", "${UNSET:-default}", "plain", "${name%.*}", "$${A}"],
    }
    server = server_from(entry)
    assert server.looked_up == ("hunter2", "default")
    assert "hunter2" not in repr(server)
