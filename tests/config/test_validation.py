"""The document as a whole: what is accepted, what errors say, and the JSON Schema."""

import copy
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import pytest

from nacre.config.document import Document
from nacre.config.sections import Section
from nacre.config.validation import config_schema, find_setting, list_settings, validate_document
from nacre.errors import MisplacedValueError
from nacre.json_types import JsonObject, JsonValue

VALIDATOR = jsonschema_rs.Draft202012Validator(config_schema())

FULL: Mapping[str, Any] = {
    "$schema": "./nacre.schema.json",
    "models": {
        "providers": {
            "openai": {"apiKey": "${OPENAI_API_KEY}", "maxRetries": 2},
            "own": {
                "api": "openai-completions",
                "baseUrl": "http://127.0.0.1:8080/v1",
                "apiKeyFile": "~/key",
                "headers": {"x-org": "a", "x-number": 7},
                "timeoutSeconds": 5.5,
                "models": [
                    {"id": "m", "name": "M", "contextWindow": 9000, "maxTokens": 100},
                    {"id": "n", "maxTokens": None},
                ],
            },
        }
    },
    "agents": {
        "defaults": {
            "model": {"primary": "own/m", "fallbacks": ["demo/demo"]},
            "workspace": "work",
            "instructions": "",
            "maxSteps": 10.0,
            "maxTokens": 5000,
            "timeoutSeconds": 60,
            "temperature": 0,
            "maxOutputTokens": None,
            "parallelToolCalls": False,
            "compaction": {"enabled": True, "thresholdShare": 0.5, "keepTurns": 0},
        },
        "list": [
            {
                "id": "a",
                "name": "A",
                "default": True,
                "model": "demo/demo",
                "tools": {"codeMode": True, "deny": ["exec"], "exec": {"enabled": True}},
            }
        ],
        "b": {"instructionsFile": "b.md", "tools": {"toolSearch": {"mode": "tools"}}},
        "c": None,
    },
    "tools": {
        "allow": ["group:fs", "mcp:*"],
        "deny": [],
        "alsoAllow": ["bundle-mcp"],
        "sandbox": {"tools": {"allow": ["read"]}},
        "codeMode": {
            "enabled": True,
            "runtime": "quickjs-wasi",
            "mode": "only",
            "languages": ["typescript"],
            "timeoutMs": 500,
        },
        "toolSearch": False,
        "fs": {"enabled": True, "ask": "never", "maxReadBytes": 4096},
        "exec": {"enabled": False, "ask": "always", "timeoutSeconds": 9, "maxOutputBytes": 2048},
        "web": {"fetch": {"enabled": True, "allow": ["*.Example.org", "*"], "maxBytes": 2048}},
    },
    "mcp": {
        "servers": {
            "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "b", "N": 1}},
            "web": {
                "type": "http",
                "url": "https://example.org/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "oauth": {"clientId": "x"},
                "requireApproval": ["write_*"],
                "allow": None,
                "keyOfAnotherClient": {"x": [1]},
            },
        }
    },
    "plugins": {
        "enabled": True,
        "paths": ["./p"],
        "load": {"paths": ["~/q"]},
        "entryPoints": False,
        "allow": ["*"],
        "deny": ["x"],
        "entries": {"weather": {"enabled": True, "config": {"any": [{"thing": None}]}}},
    },
    "messages": {"queue": {"mode": "collect", "debounceMs": 0, "cap": 5, "drop": "summarize"}},
    "gateway": {
        "host": "127.0.0.1",
        "port": 0,
        "auth": {"mode": "token", "token": "${T}"},
        "maxBodyBytes": 4096,
        "maxConcurrentRuns": 2,
        "shutdownSeconds": 0.5,
        "corsOrigins": ["https://app.example:8080", "*"],
    },
    "storage": {"url": "sqlite:///data/a.db"},
}

BROKEN: list[tuple[str, JsonValue, str]] = [
    ("gateway.port", 99999, "`gateway.port` is 99999; allowed: whole numbers from 0 to 65535"),
    ("gateway.port", True, "`gateway.port` is true; allowed: whole numbers"),
    ("gateway.port", "80", '`gateway.port` is "80"; allowed: whole numbers'),
    ("gateway.port", [], "`gateway.port` is []; allowed: whole numbers"),
    ("gateway.shutdownSeconds", -0.5, "`gateway.shutdownSeconds` is -0.5; allowed: numbers from 0"),
    ("gateway.host", "a b", '`gateway.host` is "a b"; allowed: an address or a host name'),
    ("gateway.corsOrigins", ["x"], '`gateway.corsOrigins[0]` is "x"; allowed: origins such as'),
    ("gateway.auth", "sesame", "`gateway.auth` is a text; allowed: an object"),
    ("gateway.auth.token", 7, "`gateway.auth.token` is a number; allowed: text, ${NAME} for"),
    ("gateway.prt", 1, '`gateway` has the unknown key "prt"; did you mean `port`?'),
    ("storage.url", ["sesame"], "`storage.url` is a list; allowed: sqlite:///<path> and"),
    ("tools.codeMode", "on", "`tools.codeMode` is a text; allowed: true, false and an object"),
    ("tools.codeMode.enabled", None, "`tools.codeMode.enabled` is null; allowed: true and false"),
    ("tools.codeMode.mode", "also", '`tools.codeMode.mode` is "also"; allowed: only "only"'),
    ("tools.codeMode.languages", [], "`tools.codeMode.languages` is []; allowed: a list of"),
    ("tools.codeMode.timeoutMs", 1.5, "`tools.codeMode.timeoutMs` is 1.5; allowed: whole numbers"),
    ("tools.codeMode.timeoutMS", 1, '`tools.codeMode` has the unknown key "timeoutMS"; did you'),
    ("tools.toolSearch.mode", "x", '`tools.toolSearch.mode` is "x"; allowed: "code", "tools"'),
    ("tools.deny", "exec", '`tools.deny` is "exec"; allowed: a list of names, ids or owners'),
    ("tools.web.fetch.allow", ["a", {}], "`tools.web.fetch.allow[1]` is {}; allowed: hosts"),
    ("agents.list", {}, "`agents.list` is an object; allowed: a list of agents"),
    ("agents.list", ["sesame"], "`agents.list[0]` is a text; allowed: an object"),
    ("agents.b", 3, "`agents.b` is a number; allowed: an object"),
    ("agents.b.maxSteps", 0, "`agents.b.maxSteps` is 0; allowed: whole numbers from 1 to 10000"),
    ("agents.defaults.id", "x", '`agents.defaults` has the unknown key "id"; '),
    ("agents.defaults.model", 7, "`agents.defaults.model` is a number; allowed: "),
    ("agents.defaults.model.fallbacks", [1], "`agents.defaults.model.fallbacks[0]` is 1;"),
    ("models.providers.own.headers", {"a": True}, "`models.providers.own.headers.a` is true;"),
    ("models.providers.own.models", [3], "`models.providers.own.models[0]` is a number;"),
    ("mcp.servers.git.args", "sesame", "`mcp.servers.git.args` is a text; allowed: a list of"),
    ("mcp.servers.git.disabled", "yes", "`mcp.servers.git.disabled` is a text; allowed: true"),
    ("mcp.servers.git.oauth", "sesame", "`mcp.servers.git.oauth` is a text; allowed: true, false"),
    ("plugins.entries.weather.config", [], "`plugins.entries.weather.config` is a list;"),
    ("gatway", {}, "`gatway` is not a section of a configuration; did you mean `gateway`?"),
]


def with_value(path: str, value: JsonValue) -> dict[str, Any]:
    document: Any = copy.deepcopy(dict(FULL))
    *way, last = path.split(".")
    here = document
    for key in way:
        inner = here.get(key)
        here[key] = inner if isinstance(inner, dict) else {}
        here = here[key]
    here[last] = value
    return document


def test_a_full_document_is_valid_for_nacre_and_for_the_schema() -> None:
    assert validate_document(FULL)[1] == []
    VALIDATOR.validate(FULL)


@pytest.mark.parametrize(("path", "value", "problem"), BROKEN)
def test_a_broken_document_is_invalid_for_nacre_and_for_the_schema(
    path: str, value: JsonValue, problem: str
) -> None:
    document = with_value(path, value)
    (found,) = validate_document(document)[1]
    assert str(found).startswith(problem)
    assert "sesame" not in str(found)
    assert not VALIDATOR.is_valid(document)


def test_all_problems_are_found_at_once() -> None:
    document = {
        "gateway": {"port": -1, "host": "", "auth": {"mode": 3, "x": 1}},
        "tools": 5,
        "y": 1,
    }
    assert len(validate_document(document)[1]) == 6


def test_the_rest_of_a_broken_document_is_used() -> None:
    whole, problems = validate_document(
        {
            "gateway": {"port": -1, "host": "localhost"},
            "agents": {"list": [7, {"id": "a", "maxSteps": "x", "maxTokens": 2000}]},
            "tools": {"deny": ["a", "b c", "d"], "allow": ["x"]},
        }
    )
    assert len(problems) == 4
    assert (whole.gateway.host, whole.gateway.port) == ("localhost", 18789)
    assert [agent.id for agent in whole.agents.listed] == ["", "a"]
    assert (whole.agents.listed[1].max_steps, whole.agents.listed[1].max_tokens) == (40, 2000)
    assert (whole.tools.deny, whole.tools.allow) == ([], ["x"])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308])
def test_numbers_that_are_no_setting_are_refused(number: float) -> None:
    for path in ("agents.defaults.timeoutSeconds", "agents.defaults.maxSteps"):
        (problem,) = validate_document(with_value(path, number))[1]
        assert problem.path == path


def test_a_value_in_the_place_of_an_object_may_be_a_secret_and_is_not_shown() -> None:
    secret = "sk-sesame"
    document = {
        "models": {"providers": {"openai": secret}},
        "gateway": {"auth": secret, "apiKey": secret},
        "mcp": {"servers": {"a": {"command": "x", "args": secret, "env": {"A": [secret]}}}},
        "agents": {"list": [secret], "b": {"tools": secret}},
    }
    problems = validate_document(document)[1]
    assert len(problems) == 7
    assert secret not in " ".join(map(str, problems))
    places = {it.place for it in problems if isinstance(it, MisplacedValueError)}
    assert "gateway.apiKey" in places


@pytest.mark.parametrize(
    "path", ["agents.defaults.maxSteps", "agents.defaults.model.primary", "tools.allow", "sandbox"]
)
def test_an_object_in_the_place_of_a_value_is_not_shown(path: str) -> None:
    secret: JsonObject = {"apiKey": "sk-sesame"}
    values: list[JsonValue] = [secret, [secret]]
    for value in values:
        problems = validate_document(with_value(path, value))[1]
        assert problems
        assert "sesame" not in " ".join(map(str, problems))


def test_neither_a_section_nor_the_schema_shows_a_secret() -> None:
    whole, _ = validate_document({"gateway": {"auth": {"token": "sesame"}}})
    assert whole.gateway.auth.token == "sesame"
    assert "sesame" not in f"{whole!r} {whole} {whole.gateway.auth!r}"
    auth: Any = config_schema()["$defs"]
    assert auth["AuthSection"]["properties"]["token"]["writeOnly"] is True


@pytest.mark.parametrize("key", ['a"b', "a.b", "a b", "", "__proto__", "é", "x" * 300])
def test_odd_keys_are_named_and_removed(key: str) -> None:
    whole, (problem,) = validate_document({"gateway": {key: 1, "port": 5}})
    assert problem.path == "gateway"
    assert whole.gateway.port == 5


def test_half_a_character_is_refused() -> None:
    (problem,) = validate_document({"gateway": {"\ud800": 1}})[1]
    assert str(problem) == "`gateway` has a key with half a character; write whole ones"
    (problem,) = validate_document({"gateway": {"host": "\ud800"}})[1]
    assert problem.path == "gateway.host"


def test_keys_that_are_no_text_are_unknown() -> None:
    document: Any = {1: 2, "gateway": {None: 1}}
    assert [problem.path for problem in validate_document(document)[1]] == ["gateway", "1"]


def test_null_counts_as_missing() -> None:
    document = {"gateway": {"port": None, "auth": None}, "tools": {"allow": None}, "agents": None}
    whole, problems = validate_document(document)
    assert problems == []
    assert whole == Document()
    VALIDATOR.validate(document)


def test_a_document_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    (problem,) = validate_document({"plugins": {"entries": {"w": {"config": deep}}}})[1]
    assert "nested too deep" in str(problem)


# The schema


def sections() -> Iterator[type[Section]]:
    """Every class of the model."""
    todo: list[type[Section]] = [Section]
    while todo:
        here = todo.pop()
        todo += here.__subclasses__()
        if here.__module__.startswith("nacre.config") and here.model_fields:
            yield here


def test_every_setting_is_in_the_schema_with_a_description() -> None:
    schema: Any = config_schema()
    checked = 0
    for section in sections():
        properties = (
            schema["properties"]
            if section is Document
            else schema["$defs"].get(section.__name__, {}).get("properties")
        )
        if properties is None:
            # The text form of a model is no object.
            assert section.__name__ in ("ModelName", "ContractSection")
            continue
        for field in section.model_fields.values():
            assert field.alias is not None
            assert properties[field.alias]["description"]
            checked += 1
    assert checked > 150


def test_every_setting_has_its_default_in_the_schema() -> None:
    schema: Any = config_schema()
    for path, setting in list_settings({"HOME": "~"}).items():
        if path.count(".") == 1 and "<" not in path and path not in ("storage.url",):
            section, key = path.split(".")
            reference = schema["properties"][section]["anyOf"][0]["$ref"].rpartition("/")[2]
            assert schema["$defs"][reference]["properties"][key]["default"] == setting.default


def test_the_schema_has_no_keywords_of_our_own() -> None:
    assert '"x-' not in json.dumps(config_schema())


@pytest.mark.parametrize(
    ("keys", "is_known"),
    [
        (("gateway", "port"), True),
        (("agents", "list", 0, "tools", "codeMode", "timeoutMs"), True),
        (("agents", "b", "maxSteps"), True),
        (("agents", "defaults", "model", "primary"), True),
        (("mcp", "servers", "x", "command"), True),
        (("gateway", "prt"), False),
        (("gateway", 0), False),
        (("agents", "defaults", "tools"), False),
        (("gateway", "port", "x"), False),
    ],
)
def test_a_setting_is_found_by_its_keys(keys: tuple[str | int, ...], is_known: bool) -> None:
    assert (find_setting(keys) is not None) is is_known
