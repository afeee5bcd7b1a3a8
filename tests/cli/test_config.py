"""`nacre config`: reading, changing and checking the configuration."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nacre.config import config_schema
from tests.cli.command_names import command_names
from tests.cli.surroundings import Surroundings
from tests.plugins.plugin_folders import plugin_folder

COMMENTED = """\
// mine
{
  gateway: {port: 1234}, // free
  agents: {list: [
    {id: "main", maxSteps: 3}, // first
  ]},
}
"""


@pytest.fixture
def written(surroundings: Surroundings) -> Surroundings:
    surroundings.config.write_text(COMMENTED, encoding="utf-8")
    return surroundings


def text_of(surroundings: Surroundings) -> str:
    return surroundings.config.read_text(encoding="utf-8")


def test_exec_does_not_import_what_only_the_gateway_needs() -> None:
    program = (
        "import sys; from nacre.cli.main import main; main(['exec', '-e', 'return 1']);"
        "print([name for name in ('pydantic', 'nacre.config.document', 'nacre.config.system')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n[]\n"


def test_every_command_is_on_the_page_about_configuration() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    told = set(re.findall(r"nacre config ([a-z]+)", page))
    assert command_names("config") == told


# get


def test_get_prints_text_as_it_is_and_all_else_as_json(written: Surroundings) -> None:
    assert written.nacre("config", "get", "agents.list[0].id") == (0, "main\n", "")
    assert written.nacre("config", "get", "agents.list[0].id", "--json") == (0, '"main"\n', "")
    assert written.nacre("config", "get", "gateway") == (0, '{\n  "port": 1234\n}\n', "")
    assert written.nacre("config", "get", "gateway", "--json") == (0, '{"port":1234}\n', "")


def test_get_gives_the_default_of_a_setting_that_is_not_there(written: Surroundings) -> None:
    status, out, err = written.nacre("config", "get", "gateway.host")
    assert (status, out) == (0, "127.0.0.1\n")
    assert err == f"gateway.host is not set in {written.config}; this is its default\n"


def test_get_gives_the_defaults_of_a_section_that_is_not_there(written: Surroundings) -> None:
    status, out, err = written.nacre("config", "get", "tools.web", "--json")
    assert (status, "is not set in" in err) == (0, True)
    assert json.loads(out)["fetch"]["enabled"] is False
    _, out, _ = written.nacre("config", "get", "agents.defaults", "--json")
    defaults = json.loads(out)
    assert (defaults["model"], defaults["compaction"]["keepTurns"]) == ("demo/demo", 4)


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("gatway.port", "gateway.port"),
        ("agents.list[1].id", "agents.list[0].id"),
        ("storage.uri", "storage.url"),
    ],
)
def test_get_names_the_nearest_path_to_one_that_is_not_there(
    written: Surroundings, path: str, nearest: str
) -> None:
    status, out, err = written.nacre("config", "get", path)
    assert (status, out) == (2, "")
    assert err == f"nacre: {written.config} has no `{path}`; did you mean `{nearest}`?\n"


def test_get_refuses_what_is_no_path(written: Surroundings) -> None:
    status, _, err = written.nacre("config", "get", "a..b")
    assert status == 2
    assert "`a..b` is not the path of a setting; write it like gateway.port" in err


# set


def test_set_keeps_comments(written: Surroundings) -> None:
    status, out, err = written.nacre("config", "set", "gateway.port", "4321")
    assert (status, out, err) == (0, "", f"set gateway.port in {written.config}\n")
    assert text_of(written) == COMMENTED.replace("1234", "4321")


def test_set_changes_an_item_of_a_list(written: Surroundings) -> None:
    assert written.nacre("config", "set", "agents.list[0].maxSteps", "9")[0] == 0
    assert text_of(written) == COMMENTED.replace("maxSteps: 3", "maxSteps: 9")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("gateway.host", "127.0.0.1", "127.0.0.1"),
        ("gateway.corsOrigins", "['*']", ["*"]),
        ("agents.defaults.model", "demo/demo", "demo/demo"),
        ("agents.defaults.temperature", "null", None),
        ("agents.defaults.instructions", '"007"', "007"),
        ("agents.list[1]", '{id: "b", maxSteps: 1}', {"id": "b", "maxSteps": 1}),
    ],
)
def test_a_value_is_json5_or_else_text(
    written: Surroundings, path: str, value: str, expected: object
) -> None:
    assert written.nacre("config", "set", path, value)[0] == 0
    assert json.loads(written.nacre("config", "get", path, "--json")[1]) == expected


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("gateway.port", "99999", "`gateway.port` is 99999; allowed: whole numbers"),
        ("gateway.prt", "1", '`gateway` has the unknown key "prt"; did you mean `port`?'),
        ("gatway.port", "1", "`gatway` is not a section of a configuration; did you mean"),
        ("tools.allow", '["group:all"]', '`tools.allow[0]` is "group:all"; known groups'),
        ("agents.list[0].tools.deny", "3", "`agents.list[0].tools.deny` is 3; allowed: a list"),
        ("agents.list[3].id", "x", "has a list of 1 there, so [3] would leave a gap"),
        ("agents.list.id", "x", "has no object at `agents.list`; change it by hand"),
        ("[0]", "1", "[0] begins with a number; a configuration is an object"),
    ],
)
def test_what_would_be_wrong_is_not_written(
    written: Surroundings, path: str, value: str, problem: str
) -> None:
    status, _, err = written.nacre("config", "set", path, value)
    assert status == 2
    assert problem in err
    assert text_of(written) == COMMENTED


def test_set_makes_the_users_file(surroundings: Surroundings) -> None:
    assert surroundings.nacre("config", "set", "tools.codeMode", "true")[0] == 0
    assert json.loads(text_of(surroundings)) == {"tools": {"codeMode": True}}


def test_set_writes_the_file_that_is_named(surroundings: Surroundings) -> None:
    file = surroundings.project / "own.json5"
    status, _, _ = surroundings.nacre("config", "set", "gateway.port", "1", "--config", str(file))
    assert status == 0
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "tools": {"codeMode": True},
        "gateway": {"port": 1},
    }


def test_the_first_setting_does_not_turn_code_mode_off(surroundings: Surroundings) -> None:
    surroundings.config.write_text("\n", encoding="utf-8")
    surroundings.nacre("config", "set", "tools.codeMode.timeoutMs", "5000")
    assert json.loads(text_of(surroundings)) == {
        "tools": {"codeMode": {"enabled": True, "timeoutMs": 5000}}
    }
    _, _, err = surroundings.nacre("config", "validate")
    assert err.startswith("surface: code mode: ")


def test_a_token_that_the_gateway_refuses_is_not_written(written: Surroundings) -> None:
    status, _, err = written.nacre("config", "set", "gateway.auth.token", "short")
    assert (status, text_of(written)) == (2, COMMENTED)
    assert "`gateway.auth.token` has 5 characters; a token needs at least 16" in err


def test_every_command_refuses_a_short_token(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings.config.write_text("{gateway: {auth: {token: 'short'}}}", encoding="utf-8")
    problem = "`gateway.auth.token` has 5 characters"
    status, out, _ = surroundings.nacre("config", "validate")
    assert (status, problem in out) == (1, True)
    for command in (["gateway", "--port", "0"], ["run", "hello"]):
        status, _, err = surroundings.nacre(*command)
        assert (status, problem in err) == (2, True)


def test_a_short_token_in_the_environment_does_not_block_other_settings(
    written: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_GATEWAY_TOKEN", "short")
    status, _, err = written.nacre("config", "set", "gateway.port", "4321")
    assert (status, "`NACRE_GATEWAY_TOKEN` has 5 characters" in err) == (0, True)
    assert written.nacre("gateway", "--port", "0")[0] == 2
    assert written.nacre("config", "validate")[0] == 1


def test_a_variable_that_is_not_set_here_is_only_warned_of(written: Surroundings) -> None:
    path = "models.providers.openai.apiKey"
    status, _, err = written.nacre("config", "set", path, "${NO_SUCH_VARIABLE}")
    assert status == 0
    assert f"nacre: `{path}` uses the environment variable NO_SUCH_VARIABLE, which is not" in err
    assert "${NO_SUCH_VARIABLE}" in text_of(written)


def test_a_secret_in_plain_text_is_warned_of(written: Surroundings) -> None:
    status, _, err = written.nacre("config", "set", "gateway.auth.token", "sesame-0123456789")
    assert status == 0
    assert "the value of gateway.auth.token is now in" in err
    assert "sesame" not in err


def test_a_file_with_several_faults_is_repaired_one_by_one(surroundings: Surroundings) -> None:
    surroundings.config.write_text("{gateway: {port: -1, maxBodyBytes: -2}}", encoding="utf-8")

    status, _, err = surroundings.nacre("config", "set", "gateway.port", "1")
    assert status == 0
    assert "nacre: `gateway.maxBodyBytes` is -2" in err
    # This repairs nothing.
    status, _, err = surroundings.nacre("config", "set", "gateway.host", "localhost")
    assert (status, "nothing was written" in err) == (2, True)
    assert surroundings.nacre("config", "unset", "gateway.maxBodyBytes")[0] == 0
    assert surroundings.nacre("config", "validate")[0] == 0


def test_an_agent_without_an_id_is_told_to_have_one_and_nothing_else(
    surroundings: Surroundings,
) -> None:
    status, _, err = surroundings.nacre("config", "set", "agents.list[0].model", "demo/demo")
    assert status == 2
    told = err.splitlines()[1:]
    assert [line.partition(";")[0] for line in told] == ["  `agents.list[0].id` is missing"]
    assert "`agents.defaults`" in err


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        ("{toolSearch: true}", "toolSearch.mode", "tools", "{'enabled': true, 'mode': 'tools'}"),
        ("{toolSearch: false}", "toolSearch.mode", "tools", "{'enabled': false, 'mode': 'tools'}"),
        ("{codeMode: true}", "codeMode.timeoutMs", "500", "{'enabled': true, 'timeoutMs': 500}"),
        ("{codeMode: true}", "codeMode.enabled", "false", "{'enabled': false}"),
    ],
)
def test_a_switch_becomes_an_object_when_a_setting_is_put_into_it(
    surroundings: Surroundings, text: str, path: str, value: str, expected: str
) -> None:
    surroundings.config.write_text(f"{{tools: {text}}}\n", encoding="utf-8")
    assert surroundings.nacre("config", "set", f"tools.{path}", value)[0] == 0
    key = path.partition(".")[0]
    written = expected.replace("'", '"')
    assert text_of(surroundings) == f"{{tools: {{{key}: {written}}}}}\n"


def test_a_model_makes_room_for_those_that_are_asked_after_it(surroundings: Surroundings) -> None:
    surroundings.config.write_text("{agents: {defaults: {model: 'demo/demo'}}}", encoding="utf-8")
    path = "agents.defaults.model"
    assert surroundings.nacre("config", "set", f"{path}.fallbacks", "['demo/demo']")[0] == 0
    assert text_of(surroundings) == (
        '{agents: {defaults: {model: {"primary": "demo/demo", "fallbacks": ["demo/demo"]}}}}'
    )


def test_settings_of_code_mode_that_is_off_are_warned_of(surroundings: Surroundings) -> None:
    surroundings.config.write_text("{tools: {}}", encoding="utf-8")
    status, _, err = surroundings.nacre("config", "set", "tools.codeMode.timeoutMs", "5000")
    warning = "nacre: `tools.codeMode` has no effect: code mode needs `enabled: true` in it\n"
    assert (status, warning in err) == (0, True)
    status, _, err = surroundings.nacre("config", "validate")
    assert status == 0
    assert err.startswith(warning)
    _, _, err = surroundings.nacre("config", "set", "tools.codeMode.enabled", "false")
    assert "no effect" not in err
    surroundings.nacre("config", "unset", "tools.codeMode.enabled")
    # Another place may switch it on.
    agent = "{id: 'main', tools: {codeMode: true}}"
    _, _, err = surroundings.nacre("config", "set", "agents.list", f"[{agent}]")
    assert "no effect" not in err


def test_tool_search_behind_code_mode_is_warned_of(surroundings: Surroundings) -> None:
    surroundings.nacre("config", "set", "tools.codeMode", "true")
    _, _, err = surroundings.nacre("config", "set", "tools.toolSearch", "true")
    assert (
        "nacre: `tools.toolSearch` has no effect for the agent main: `tools.codeMode` is on as "
        "well, and takes precedence\n"
    ) in err


# unset


def test_unset_removes_one_setting(written: Surroundings) -> None:
    status, out, err = written.nacre("config", "unset", "agents.list[0].maxSteps")
    assert (status, out) == (0, "")
    assert err == f"removed agents.list[0].maxSteps from {written.config}\n"
    assert text_of(written) == COMMENTED.replace(", maxSteps: 3", "")


def test_unset_keeps_what_the_rest_needs(written: Surroundings) -> None:
    status, _, err = written.nacre("config", "unset", "agents.list[0].id")
    assert status == 2
    assert "`agents.list[0].id` is missing" in err
    assert text_of(written) == COMMENTED


def test_unset_names_the_nearest_path(written: Surroundings) -> None:
    status, _, err = written.nacre("config", "unset", "gateway.prt")
    assert (status, err) == (
        2,
        f"nacre: {written.config} has no `gateway.prt`; did you mean `gateway.port`?\n",
    )


@pytest.mark.parametrize(
    "path", ["tools.exec", "gateway.host", "agents.list[0].model", "tools.codeMode.timeoutMs"]
)
def test_unset_of_a_setting_that_is_not_set_says_so(written: Surroundings, path: str) -> None:
    status, out, err = written.nacre("config", "unset", path)
    assert (status, out) == (0, "")
    assert err == f"{path} is not set in {written.config}; there is nothing to remove\n"
    assert text_of(written) == COMMENTED


# validate


def test_validate_says_that_a_file_is_valid(written: Surroundings) -> None:
    status, out, err = written.nacre("config", "validate")
    assert (status, out) == (0, "")
    assert err.endswith(f"\n{written.config}: valid\n")


def test_validate_names_the_surface_of_each_agent(surroundings: Surroundings) -> None:
    surroundings.config.write_text(
        "{agents: {a: {}, b: {tools: {codeMode: true}}, c: {}, d: {model: 'openai/gpt-5.5'}},"
        " plugins: {entries: {codex: {enabled: true}}}}",
        encoding="utf-8",
    )
    _, _, err = surroundings.nacre("config", "validate", "--config", str(surroundings.config))
    surfaces = err.splitlines()[:3]
    assert surfaces[0].startswith("surface of b: code mode: ")
    assert surfaces[1].startswith("surface of d: Codex: ")
    assert surfaces[2].startswith("surface of a, c: direct: ")
    assert f"nacre config set --config {surroundings.config} tools.codeMode" in surfaces[2]
    _, out, _ = surroundings.nacre("config", "validate", "--json")
    kinds = {"a": "direct", "b": "code_mode", "c": "direct", "d": "codex"}
    assert json.loads(out)["surfaces"] == kinds


def test_validate_prints_every_problem(surroundings: Surroundings) -> None:
    surroundings.config.write_text(
        "{gateway: {port: -1}, tools: {allow: ['a b'], codeMode: 3}}", encoding="utf-8"
    )
    status, out, err = surroundings.nacre("config", "validate")
    assert status == 1
    assert out.splitlines() == [
        '`tools.allow[0]` is "a b"; allowed: a tool\'s name, id or owner, without spaces; '
        "`*` and `?` are wildcards",
        "`tools.codeMode` is a number; allowed: true, false and an object",
        "`gateway.port` is -1; allowed: whole numbers from 0 to 65535",
    ]
    assert err == f"{surroundings.config}: 3 problems\n"


def test_validate_names_every_number_that_is_clamped(surroundings: Surroundings) -> None:
    surroundings.config.write_text(
        "{tools: {codeMode: {enabled: true, timeoutMs: 5}},"
        " agents: {list: [{id: 'a', tools: {codeMode: {maxSearchLimit: 999}}}]}}",
        encoding="utf-8",
    )
    warnings = [
        "`tools.codeMode.timeoutMs` is 5; 100 is used",
        "`agents.list[0].tools.codeMode.maxSearchLimit` is 999; 50 is used",
    ]
    status, out, err = surroundings.nacre("config", "validate")
    assert (status, out) == (0, "")
    assert err.splitlines() == [
        *(f"nacre: {warning}" for warning in warnings),
        "surface: code mode: the model gets `exec` and `wait`, and its programs call the tools",
        f"{surroundings.config}: valid",
    ]
    status, out, _ = surroundings.nacre("config", "validate", "--json")
    assert (status, json.loads(out)["warnings"]) == (0, warnings)


def test_settings_of_plugins_are_checked_by_their_manifests(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    # Would be noticed if any of it ran.
    folder = plugin_folder(
        tmp_path,
        "weather",
        "raise SystemExit(7)",
        configSchema={
            "properties": {"unit": {"enum": ["celsius"]}, "key": {"minLength": 1}},
            "additionalProperties": False,
        },
    )
    entries = {"weather": {"config": {"unitt": 1, "unit": "x", "key": "${NONE}"}}, "wether": {}}
    paths = [str(folder), "./none"]
    surroundings.configure({}, plugins={"paths": paths, "entries": entries, "entryPoints": False})
    status, out, err = surroundings.nacre("config", "validate")
    assert status == 1
    place = "`plugins.entries.weather.config"
    assert [line.partition("; set")[0] for line in out.splitlines()] == [
        f"{place}.key` uses the environment variable NONE, which is not set",
        f'{place}.unit` is not an allowed value; allowed: "celsius"',
        f'{place}` has the unknown key "unitt"; did you mean `unit`?',
        f"`plugins.paths` names {surroundings.config.parent / 'none'}, which has no plugin to load:"
        f" {surroundings.config.parent / 'none' / 'nacre.plugin.json'} cannot be read:"
        " No such file or directory",
    ]
    assert "`plugins.entries.wether` is for a plugin that is not there; did you mean" in err

    status, _, err = surroundings.nacre("config", "set", "plugins.entries.weather.config.nope", "1")
    assert (status, "nothing was written" in err) == (2, True)
    assert surroundings.nacre("config", "set", "gateway.port", "1")[0] == 0


def test_schema_prints_the_schema_of_the_configuration(surroundings: Surroundings) -> None:
    status, out, err = surroundings.nacre("config", "schema")
    assert (status, err) == (0, "")
    assert json.loads(out) == config_schema()


def test_validate_for_programs(surroundings: Surroundings) -> None:
    surroundings.config.write_text("{gateway: {port: -1}}", encoding="utf-8")
    status, out, err = surroundings.nacre("config", "validate", "--json")
    assert (status, err) == (1, "")
    assert json.loads(out) == {
        "file": str(surroundings.config),
        "valid": False,
        "problems": [
            {
                "path": "gateway.port",
                "problem": "is -1; allowed: whole numbers from 0 to 65535",
            }
        ],
        "warnings": [],
        "surfaces": {},
    }


def test_validate_tells_where_a_file_is_no_json5(surroundings: Surroundings) -> None:
    surroundings.config.write_text("{gateway: {port: }}", encoding="utf-8")
    status, out, _ = surroundings.nacre("config", "validate")
    assert status == 1
    assert "is not JSON5: line 1, column" in out


def test_without_a_file_the_defaults_hold(surroundings: Surroundings) -> None:
    status, out, err = surroundings.nacre("config", "validate")
    assert (status, out) == (0, "")
    assert err.startswith("surface: code mode: ")
    assert err.endswith(f"\n{surroundings.config}: does not exist; defaults apply\n")


# show and path


def test_show_hides_secrets_and_says_where_the_file_is(surroundings: Surroundings) -> None:
    surroundings.config.write_text(
        "{gateway: {auth: {token: 'sesame'}}, models: {providers: {openai: {apiKey: '${K}'}}}}",
        encoding="utf-8",
    )
    status, out, err = surroundings.nacre("config", "show")
    assert status == 0
    assert json.loads(out) == {
        "gateway": {"auth": {"token": "***"}},
        "models": {"providers": {"openai": {"apiKey": "${K}"}}},
    }
    assert err == f"{surroundings.config}, in your config directory\n"
    assert surroundings.nacre("config", "get", "gateway.auth.token")[1] == "***\n"


@pytest.mark.parametrize(
    "text",
    [
        '{ models: { providers: { openai: "hunter2" } } }',
        '{ models: { providers: { openai: { apiKye: "hunter2" } } } }',
        '{ models: { providers: "hunter2" } }',
        '{ mcp: { servers: { files: "hunter2" } } }',
        '{ plugins: { entries: { weather: "hunter2" } } }',
        '{ plugins: { entries: { weather: { config: "hunter2" } } } }',
        '{ gateway: "hunter2" }',
        '{ gateway: { auth: "hunter2" } }',
        '{ gateway: ["hunter2"] }',
        '{ gatewy: "hunter2" }',
        '{ agents: { list: ["hunter2"] } }',
        '{ tools: { exec: "hunter2" } }',
        '{ tools: { codeMode: "hunter2" } }',
        '{ tools: { toolSearch: ["hunter2"] } }',
        '{ tools: "hunter2" }',
        '{ agents: { list: "hunter2" } }',
        '{ agents: { list: { main: "hunter2" } } }',
        '{ agents: { list: [{ id: "a", tools: { codeMode: "hunter2" } }] } }',
        '{ models: { providers: { openai: { models: "hunter2" } } } }',
        '{ models: { providers: { openai: { models: { a: "hunter2" } } } } }',
        '{ mcp: { servers: { files: { command: "x", pin: "hunter2" } } } }',
        '{ mcp: { servers: { files: { command: "x", options: { pin: ["hunter2"] } } } } }',
        '{ mcpServers: { files: { url: "http://x/", oauth: { user: "hunter2" } } } }',
    ],
)
def test_a_secret_that_stands_in_a_wrong_place_is_not_shown(
    surroundings: Surroundings, text: str
) -> None:
    surroundings.config.write_text(text, encoding="utf-8")
    section = text.split()[1].rstrip(":")
    for arguments in (["show"], ["show", "--json"], ["get", section]):
        _, out, err = surroundings.nacre("config", *arguments)
        assert "***" in out
        assert "hunter2" not in out + err
    for arguments in (["validate"], ["validate", "--json"]):
        assert "hunter2" not in "".join(map(str, surroundings.nacre("config", *arguments)))


def test_show_for_programs(written: Surroundings) -> None:
    _, out, _ = written.nacre("config", "show", "--json")
    shown = json.loads(out)
    assert shown["config"]["gateway"] == {"port": 1234}
    assert (shown["file"], shown["origin"], shown["exists"]) == (str(written.config), "user", True)


def test_path_prints_the_file_whether_it_is_there_or_not(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert surroundings.nacre("config", "path") == (
        0,
        f"{surroundings.config}\n",
        f"{surroundings.config}, in your config directory; it does not exist\n",
    )
    monkeypatch.setenv("NACRE_CONFIG", "/none.json5")
    assert surroundings.nacre("config", "path")[1] == "/none.json5\n"
    assert surroundings.nacre("config", "path", "--config", "x")[2] == (
        "x, named by --config; it does not exist\n"
    )


def test_show_refuses_a_file_that_is_named_and_not_there(surroundings: Surroundings) -> None:
    status, _, err = surroundings.nacre("config", "show", "--config", "none.json5")
    assert (status, "is not there, but --config names it" in err) == (2, True)
