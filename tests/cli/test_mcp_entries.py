"""`nacre mcp import` and `nacre mcp config`: other clients' files, read and written for."""

import json
import tomllib

import pytest

from tests.cli.surroundings import Surroundings

CURSOR = {
    "mcpServers": {
        "git": {"command": "uvx", "args": ["git"], "env": {"TOKEN": "${GIT_TOKEN:-none}"}},
        "My Docs": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer s3cr3t"}},
        "nacre": {"command": "nacre", "args": ["mcp"]},
    }
}


def write_cursor_file(surroundings: Surroundings) -> None:
    file = surroundings.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps(CURSOR), encoding="utf-8")


def test_import_copies_entries_with_their_references(surroundings: Surroundings) -> None:
    write_cursor_file(surroundings)

    status, out, err = surroundings.run("import", "--client", "cursor")

    config = json.loads(surroundings.config.read_text(encoding="utf-8"))
    assert config["mcp"]["servers"] == {
        "git": CURSOR["mcpServers"]["git"],
        "My-Docs": CURSOR["mcpServers"]["My Docs"],
    }
    assert (status, out) == (0, "git\nMy-Docs\n")
    assert err.splitlines()[-1] == f"2 of 2 servers added to {surroundings.config}"
    assert "nacre is left out: it starts `nacre mcp` itself" in err
    assert "the value of Authorization of My-Docs" in err
    assert "s3cr3t" not in err


def test_import_takes_any_clients_file(surroundings: Surroundings) -> None:
    file = surroundings.project / "config.toml"
    file.write_text('[mcp_servers.git]\ncommand = "uvx"\n', encoding="utf-8")

    status, out, _ = surroundings.run("import", str(file))

    assert (status, out) == (0, "git\n")


def test_dry_run_changes_nothing(surroundings: Surroundings) -> None:
    write_cursor_file(surroundings)

    status, out, err = surroundings.run("import", "--client", "cursor", "--dry-run")

    assert (status, out) == (0, "git\nMy-Docs\n")
    assert "2 of 2 servers would be added" in err
    assert not surroundings.config.exists()


def test_import_leaves_servers_alone_that_are_there(surroundings: Surroundings) -> None:
    write_cursor_file(surroundings)
    surroundings.configure({"git": {"command": "mine"}})

    status, out, err = surroundings.run("import", "--client", "cursor")

    config = json.loads(surroundings.config.read_text(encoding="utf-8"))
    assert config["mcp"]["servers"]["git"] == {"command": "mine"}
    assert (status, out) == (0, "My-Docs\n")
    assert "git is already configured, with other settings, which are kept" in err


def test_import_without_a_source_says_what_is_here(surroundings: Surroundings) -> None:
    write_cursor_file(surroundings)

    status, _, err = surroundings.run("import")

    assert status == 2
    assert "give one of them; clients with servers: cursor (git, My Docs)" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--client", "emacs"], "--client is 'emacs'; allowed: claude, claude-code, cursor"),
        (
            ["--client", "claude"],
            "found no file with servers of claude; found no client with servers",
        ),
        (["x.json", "--client", "claude"], "got both a file and --client"),
        (["gone.json"], "gone.json"),
    ],
)
def test_import_refuses(surroundings: Surroundings, arguments: list[str], problem: str) -> None:
    status, out, err = surroundings.run("import", *arguments)

    assert (status, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize(
    ("client", "key"),
    [
        ("claude", "mcpServers"),
        ("claude-code", "mcpServers"),
        ("cursor", "mcpServers"),
        ("vscode", "servers"),
    ],
)
def test_config_prints_json_that_starts_nacre(
    surroundings: Surroundings, client: str, key: str
) -> None:
    surroundings.configure({"one": {"command": "one"}})

    status, out, err = surroundings.run("config", "--client", client)

    entry = json.loads(out)[key]["nacre"]
    assert entry["args"][-3:] == ["mcp", "--config", str(surroundings.config)]
    assert status == 0
    assert err.startswith("paste it into ")


def test_config_prints_toml_for_codex(surroundings: Surroundings) -> None:
    theirs = surroundings.project / "a b.json"
    theirs.write_text("{}", encoding="utf-8")

    _, out, _ = surroundings.run("config", "--client", "codex", "--servers", "a b.json")

    assert tomllib.loads(out)["mcp_servers"]["nacre"]["args"][-3:] == [
        "mcp", "--servers", str(theirs),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", {"env": {"A_TOKEN": "${A_TOKEN}", "B": "${B}"}}),
        ("cursor", {"env": {"A_TOKEN": "${env:A_TOKEN}", "B": "${env:B}"}}),
        ("claude", {"env": {"A_TOKEN": "<the value of A_TOKEN>", "B": "<the value of B>"}}),
        ("codex", {"env_vars": ["A_TOKEN", "B"]}),
    ],
)
def test_config_names_the_variables_that_the_client_has_to_pass_on(
    surroundings: Surroundings, client: str, expected: dict[str, object]
) -> None:
    surroundings.configure(
        {
            "one": {"command": "one", "env": {"T": "${A_TOKEN}", "D": "${D:-x} ${userHome}"}},
            "two": {"url": "https://x.example", "headers": {"A": "Bearer ${env:B} $${PLAIN}"}},
            "off": {"command": "off", "env": {"T": "${UNUSED}"}, "disabled": True},
        }
    )

    _, out, err = surroundings.run("config", "--client", client)

    document = tomllib.loads(out) if client == "codex" else json.loads(out)
    [servers] = document.values()
    assert expected.items() <= servers["nacre"].items()
    [key] = expected
    assert f"your servers need A_TOKEN, B; the client has to pass them on, see `{key}`" in err


def test_config_needs_a_client_that_it_knows(surroundings: Surroundings) -> None:
    assert surroundings.run("config")[0] == 2
    assert surroundings.run("config", "--client", "emacs")[0] == 2
