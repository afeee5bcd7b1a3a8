"""`nacre mcp`: which command the arguments name, and how servers get into the configuration."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from nacre import CodeMode, Completed, McpConnections
from nacre.cli.app import add_mcp_default
from nacre.cli.configured_servers import configured_servers
from tests.cli.command_names import command_names
from tests.cli.surroundings import Surroundings


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["mcp"], ["mcp", "serve"]),
        (["mcp", "--servers", "list"], ["mcp", "serve", "--servers", "list"]),
        (["mcp", "list"], ["mcp", "list"]),
        (["mcp", "--help"], ["mcp", "--help"]),
        (["mcp", "-h"], ["mcp", "-h"]),
        (["exec", "mcp"], ["exec", "mcp"]),
        ([], []),
    ],
)
def test_mcp_alone_or_with_options_serves(given: list[str], meant: list[str]) -> None:
    assert add_mcp_default(given) == meant


def test_exec_does_not_import_what_only_mcp_needs() -> None:
    program = (
        "import sys; from nacre.cli.main import main; main(['exec', '-e', 'return 1']);"
        "print([name for name in ('mcp', 'mcp_types', 'json5', 'rich') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "1\n[]\n"


def test_every_command_is_on_the_page_about_mcp() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")

    told = set(re.findall(r"nacre mcp ([a-z]+)", page))
    assert command_names("mcp") == told


# add


def test_add_writes_a_command_into_the_users_configuration(surroundings: Surroundings) -> None:
    status, out, err = surroundings.run("add", "git", "--", "uvx", "mcp-server-git", "--repo", ".")

    config = json.loads(surroundings.config.read_text(encoding="utf-8"))
    assert config == {
        "tools": {"codeMode": True},
        "mcp": {"servers": {"git": {"command": "uvx", "args": ["mcp-server-git", "--repo", "."]}}},
    }
    assert (status, out) == (0, "")
    assert err == f"added git to {surroundings.config}; try it with `nacre mcp status git`\n"


def test_add_writes_a_command_of_this_folder_so_that_it_is_found_from_everywhere(
    surroundings: Surroundings,
) -> None:
    server = surroundings.project / "tools" / "server"
    server.parent.mkdir()
    server.touch()
    surroundings.run("add", "a", "--", "tools/server")
    surroundings.run("add", "b", "--cwd", "tools", "--", "./server")
    # What may mean something else where it is started is left alone.
    surroundings.run("add", "c", "--", "server")
    surroundings.run("add", "d", "--cwd", "~/x", "--", "tools/none")

    servers = json.loads(surroundings.config.read_text(encoding="utf-8"))["mcp"]["servers"]
    assert servers == {
        "a": {"command": str(server), "args": []},
        "b": {"command": str(server), "args": [], "cwd": str(server.parent)},
        "c": {"command": "server", "args": []},
        "d": {"command": "tools/none", "args": [], "cwd": "~/x"},
    }


def test_add_warns_of_arguments_that_are_paths_from_here(surroundings: Surroundings) -> None:
    (surroundings.project / "server.js").touch()
    _, _, err = surroundings.run("add", "a", "--", "node", "server.js", "--port=1.5", "other.js")
    assert err.startswith(
        "nacre: server.js is relative to this directory, but the server starts in Nacre's"
    )
    assert err.count("relative to this directory") == 1
    _, _, err = surroundings.run("add", "b", "--cwd", ".", "--", "node", "server.js")
    assert "relative to this directory" not in err


def test_add_writes_a_url_with_headers(surroundings: Surroundings) -> None:
    status, _, err = surroundings.run(
        "add", "docs", "--url", "https://x.example/mcp", "--header", "X-Team=a=b"
    )

    config = json.loads(surroundings.config.read_text(encoding="utf-8"))
    assert config["mcp"]["servers"] == {
        "docs": {"type": "http", "url": "https://x.example/mcp", "headers": {"X-Team": "a=b"}}
    }
    assert (status, err.count("\n")) == (0, 1)


def test_add_leaves_comments_and_other_settings_alone(surroundings: Surroundings) -> None:
    before = "{\n  // mine\n  tools: {codeMode: {timeoutMs: 5000}},\n}\n"
    surroundings.config.write_text(before, encoding="utf-8")

    surroundings.run("add", "one", "--", "one")

    after = surroundings.config.read_text(encoding="utf-8")
    assert "// mine" in after
    assert "timeoutMs: 5000" in after
    assert surroundings.run("list")[1].splitlines()[1].split()[:3] == ["one", "stdio", "one"]


def test_add_puts_servers_where_the_file_has_its_servers(surroundings: Surroundings) -> None:
    file = surroundings.project / "nacre.json"
    file.write_text('{"mcpServers": {"one": {"command": "one"}}}', encoding="utf-8")

    surroundings.run("add", "two", "--", "two")

    assert list(json.loads(file.read_text(encoding="utf-8"))["mcpServers"]) == ["one", "two"]


def test_add_makes_a_file_that_is_named(surroundings: Surroundings) -> None:
    file = surroundings.project / "deep" / "mine.json5"

    status, _, _ = surroundings.run("add", "--config", str(file), "one", "--", "one")

    assert status == 0
    assert "one" in json.loads(file.read_text(encoding="utf-8"))["mcp"]["servers"]


def test_secret_in_plain_text_is_named_but_not_shown(surroundings: Surroundings) -> None:
    status, _, err = surroundings.run("add", "one", "--env", "API_KEY=s3cr3t", "--", "one")

    assert status == 0
    assert f"the value of API_KEY is now in {surroundings.config}" in err
    assert "s3cr3t" not in err


def test_reference_is_kept_and_may_be_unset(surroundings: Surroundings) -> None:
    status, _, err = surroundings.run("add", "one", "--env", "API_KEY=${NOT_SET_HERE}", "--", "one")

    entry = json.loads(surroundings.config.read_text(encoding="utf-8"))["mcp"]["servers"]["one"]
    assert entry["env"] == {"API_KEY": "${NOT_SET_HERE}"}
    assert status == 0
    assert "NOT_SET_HERE, which is not set" in err
    assert "is now in" not in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["one"], "give a command or a URL"),
        (["one", "--url", "http://x", "--", "one"], "give a command or a URL"),
        (["one", "--header", "A=b", "--", "one"], "--header does not apply to a"),
        (["one", "--sse", "--", "one"], "--sse does not apply to a command"),
        (["one", "--url", "http://x", "--env", "A=b"], "--env does not apply"),
        (["one", "--env", "s3cr3t", "--", "one"], "a value of --env has no name; write"),
        (["a b", "--", "one"], "'a b' has spaces or colons"),
        (["", "--", "one"], "is not a server name"),
        (["one", "--url", "ftp://x"], "url"),
    ],
)
def test_add_refuses_what_makes_no_server(
    surroundings: Surroundings, arguments: list[str], problem: str
) -> None:
    status, out, err = surroundings.run("add", *arguments)

    assert (status, out) == (2, "")
    assert problem in err
    assert "s3cr3t" not in err
    assert not surroundings.config.exists()


def test_add_does_not_replace_a_server(surroundings: Surroundings) -> None:
    surroundings.configure({"one": {"command": "first"}})

    status, _, err = surroundings.run("add", "one", "--", "second")

    assert (status, "already has a server 'one'" in err) == (2, True)
    assert "second" not in surroundings.config.read_text(encoding="utf-8")


# remove


def test_remove_takes_one_server_out(surroundings: Surroundings) -> None:
    surroundings.configure({"one": {"command": "one"}, "two": {"command": "two"}})

    result = surroundings.run("remove", "one")

    assert result == (0, "", f"removed one from {surroundings.config}\n")
    assert list(json.loads(surroundings.config.read_text(encoding="utf-8"))["mcp"]["servers"]) == [
        "two"
    ]


def test_remove_names_the_servers_that_are_there(surroundings: Surroundings) -> None:
    surroundings.configure({"one": {"command": "one"}})

    status, _, err = surroundings.run("remove", "on")

    assert (status, err) == (2, f"nacre: {surroundings.config} has no server 'on'; it has: one\n")


# list


def test_list_shows_places_and_no_secrets(surroundings: Surroundings) -> None:
    surroundings.configure(
        {
            "git": {"command": "uvx", "args": ["s3cr3t"], "env": {"TOKEN": "s3cr3t"}},
            "docs": {"url": "https://u:s3cr3t@x.example/s3cr3t", "headers": {"A": "s3cr3t"}},
            "off": {"command": "off", "disabled": True},
            "bad": {"command": "bad", "env": {"A": "${NOT_SET_HERE}"}},
        }
    )

    status, out, err = surroundings.run("list")
    json_status, document, _ = surroundings.run("list", "--json")

    rows = [line.split() for line in out.splitlines()]
    assert [row[:3] for row in rows[:3]] == [
        ["server", "transport", "place"],
        ["git", "stdio", "uvx"],
        ["docs", "http", "https://x.example"],
    ]
    assert rows[3][-1] == "disabled"
    assert "environment variable NOT_SET_HERE, which is not set" in out.splitlines()[4]
    assert (status, json_status, err) == (0, 0, "")
    assert "s3cr3t" not in out + document
    servers = json.loads(document)["servers"]
    assert servers[0]["env"] == ["TOKEN"]
    assert [server["disabled"] for server in servers] == [False, False, True, False]


@pytest.mark.parametrize(
    ("command", "args", "place"),
    [
        ("npx", ["-y", "@acme/files@1.2", "/home"], "@acme/files@1.2"),
        ("uvx", ["mcp-server-git", "--repository", "."], "mcp-server-git"),
        ("uv", ["tool", "run", "mcp[cli]"], "mcp[cli]"),
        ("/usr/bin/python3", ["-m", "mcp_server_time"], "mcp_server_time"),
        ("npx", ["--token", "s3cr3t", "files"], "npx"),
        ("npx", [], "npx"),
        ("npx", ["https://u:s3cr3t@x.example/files.tgz"], "npx"),
        ("my-server", ["s3cr3t"], "my-server"),
    ],
)
def test_list_shows_the_package_that_a_command_starts(
    surroundings: Surroundings, command: str, args: list[str], place: str
) -> None:
    surroundings.configure({"one": {"command": command, "args": args}})

    _, out, _ = surroundings.run("list")

    assert out.splitlines()[1].split()[2] == place


async def test_a_program_that_uses_a_server_without_its_secret_gets_the_reason(
    tmp_path: Path,
) -> None:
    file = tmp_path / "nacre.json"
    entry = {"command": "bad", "env": {"A": "${NOT_SET_HERE}"}}
    text = json.dumps({"mcp": {"servers": {"secretive": entry}}})
    await anyio.Path(file).write_text(text)
    configured = await anyio.to_thread.run_sync(configured_servers, str(file), ())
    code = "return [Object.keys(MCP), await MCP.secretive.read({}).catch((error) => error.message)]"
    async with (
        McpConnections(configured.configs) as connections,
        CodeMode(mcp=connections.servers(), workers=1) as code_mode,
    ):
        result = await code_mode.exec(code)
    assert isinstance(result, Completed)
    names, message = cast("list[Any]", result.value)
    assert names == ["secretive"]
    assert "`mcp.servers.secretive.env.A` uses the environment variable NOT_SET_HERE" in message


def test_list_of_nothing_says_what_to_do(surroundings: Surroundings) -> None:
    status, out, err = surroundings.run("list")

    assert (status, out) == (0, "")
    assert "`nacre mcp add` or `nacre mcp import`" in err


def test_servers_of_a_clients_file_are_taken_as_they_are(surroundings: Surroundings) -> None:
    surroundings.configure({"mine": {"command": "mine"}})
    theirs = surroundings.project / "claude.json"
    theirs.write_text('{"mcpServers": {"theirs": {"command": "t"}}}', encoding="utf-8")

    _, out, _ = surroundings.run("list", "--servers", str(theirs))

    assert [line.split()[0] for line in out.splitlines()] == ["server", "theirs"]


def test_two_servers_of_one_name_are_refused(surroundings: Surroundings) -> None:
    files = [surroundings.project / name for name in ("a.json", "b.json")]
    for file in files:
        file.write_text('{"mcpServers": {"one": {"command": "t"}}}', encoding="utf-8")

    status, _, err = surroundings.run(
        "list", "--servers", str(files[0]), "--servers", str(files[1])
    )

    assert status == 2
    assert f"two servers are named 'one' (in {files[0]} and {files[1]})" in err


def test_named_file_that_is_missing_is_bad_usage(surroundings: Surroundings) -> None:
    for arguments in (["--config", "gone.json5"], ["--servers", "gone.json"]):
        status, out, err = surroundings.run("list", *arguments)

        assert (status, out) == (2, "")
        assert "gone.json" in err


def test_keys_without_effect_are_told(surroundings: Surroundings) -> None:
    surroundings.configure({"one": {"command": "one", "comand": "x"}})

    _, _, err = surroundings.run("list")

    assert f"nacre: {surroundings.config}: `mcp.servers.one.comand` is not used" in err


@pytest.mark.parametrize("header", ["Authorization: Bearer s3cr3t==", "s3cr3t", "a s3cr3t=b", "="])
def test_add_does_not_show_a_header_that_is_none(surroundings: Surroundings, header: str) -> None:
    status, out, err = surroundings.run("add", "x", "--url", "https://a.b/c", "--header", header)
    assert status == 2
    assert "--header NAME=VALUE" in err
    assert "s3cr3t" not in out + err
