"""`agents`: each agent's own settings over the defaults, and the models that it may be given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nacre.config.agents import AgentsConfig, AgentSettings, CompactionConfig
from nacre.config.system import read_system
from nacre.errors import MissingReferenceError, SessionError

HOME = {"HOME": "/home/ada"}


def read(
    agents: Mapping[str, Any], *, folder: Path = Path("/etc"), **document: Any
) -> tuple[AgentsConfig, list[str]]:
    found = read_system({"agents": agents, **document}, environment=HOME, folder=folder)
    return found.config.agents, [str(problem) for problem in found.problems]


def test_an_agents_own_settings_go_over_the_defaults_key_by_key() -> None:
    agents, problems = read(
        {
            "defaults": {
                "maxSteps": 7,
                "temperature": 0.5,
                "workspace": "~/shared",
                "compaction": {"keepTurns": 2, "thresholdShare": 0.5},
            },
            "list": [
                {"id": "a", "maxSteps": 9, "compaction": {"keepTurns": 3}},
                {"id": "b", "name": "Bo", "workspace": "own", "parallelToolCalls": False},
            ],
        }
    )
    a, b = agents.agent("a"), agents.agent("B")

    assert problems == []
    assert (a.max_steps, b.max_steps) == (9, 7)
    assert a.compaction == CompactionConfig(keep_turns=3, threshold_share=0.5)
    assert (a.workspace, b.workspace) == (Path("/home/ada/shared"), Path("/etc/own"))
    assert (a.name, b.name) == ("a", "Bo")
    assert b.settings == AgentSettings(temperature=0.5, is_parallel=False)
    assert (agents.ids, agents.default_id) == (("a", "b"), "a")


def test_an_agent_may_stand_by_its_name_and_in_the_list_at_once() -> None:
    agents, problems = read(
        {"list": [{"id": "Main", "maxSteps": 3, "maxTokens": 5000}], "main": {"maxSteps": 4}}
    )
    assert problems == []
    assert agents.ids == ("Main",)
    assert (agents.agent("main").max_steps, agents.agent("main").max_tokens) == (4, 5000)


def test_the_default_agent_is_the_one_that_says_so() -> None:
    agents, _ = read({"list": [{"id": "a"}, {"id": "b", "default": True}], "c": {}})
    assert (agents.default_id, agents.ids) == ("b", ("a", "b", "c"))


def test_an_agent_that_is_not_there_is_told_with_those_that_are() -> None:
    agents, _ = read({"list": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(SessionError, match="no agent 'c'; there are: a, b") as refusal:
        agents.agent("c")
    assert refusal.value.code == "not_found"


def test_an_agents_core_tools_go_over_those_of_all() -> None:
    agents, problems = read(
        {"list": [{"id": "a", "tools": {"exec": {"enabled": True}}}, {"id": "b"}]},
        tools={
            "exec": {"timeoutSeconds": 9},
            "web": {"fetch": {"enabled": True, "allow": ["*.Python.org"]}},
        },
    )
    a, b = agents.agent("a").core_tools, agents.agent("b").core_tools

    assert problems == []
    assert (a.exec.is_enabled, a.exec.timeout_seconds) == (True, 9)
    assert (b.exec.is_enabled, b.exec.timeout_seconds) == (False, 9)
    assert (b.web_fetch.allow, b.fs.ask) == (("*.python.org",), "writes")


WRONG_AGENTS: list[tuple[Mapping[str, Any], str]] = [
    ({"list": {}}, "`agents.list` is an object; allowed: a list of agents"),
    ({"list": [{}]}, "`agents.list[0].id` is missing; allowed: 1 to 64 letters"),
    ({"list": [{"id": "a b"}]}, '`agents.list[0].id` is "a b"; allowed: 1 to 64 letters'),
    (
        {"list": [{"id": "a"}, {"id": "A"}]},
        '`agents.list[1].id` is "A", as another agent has it',
    ),
    (
        {"list": [{"id": "a", "default": True}, {"id": "b", "default": True}]},
        "`agents.list[1].default` is true, but a is the default; keep one of the two",
    ),
    ({"default": {}}, "`agents.default` did you mean `agents.defaults`?"),
    ({"../etc": {}}, '`agents["../etc"]` is not an agent id'),
    (
        # Told once, and also where each agent goes over it.
        {"defaults": {"maxSteps": 0}, "list": [{"id": "a", "maxSteps": 1}, {"id": "b"}]},
        "`agents.defaults.maxSteps` is 0; allowed: whole numbers from 1 to 10000",
    ),
    ({"defaults": {"compaction": True}}, "`agents.defaults.compaction` is true; allowed: an"),
    ({"a": {"tools": {"fs": {"maxReadBytes": 1}}}}, "`agents.a.tools.fs.maxReadBytes` is 1;"),
    (
        {"a": {"tools": {"web": {"fetch": {"allow": ["https://x.org/"]}}}}},
        '`agents.a.tools.web.fetch.allow[0]` is "https://x.org/"; allowed: hosts such as',
    ),
    ({"a": {"tools": {"allow": "x"}}}, '`agents.a.tools.allow` is "x"; allowed: a list of'),
]


@pytest.mark.parametrize(("agents", "problem"), WRONG_AGENTS)
def test_what_is_not_allowed_is_named(agents: Mapping[str, Any], problem: str) -> None:
    _, problems = read(agents)
    assert [problem in found for found in problems] == [True], problems


# Instructions


def test_instructions_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "be.md").write_text("Be brief.\n", encoding="utf-8")
    agents, problems = read(
        {
            "defaults": {"instructions": "Be kind."},
            "list": [{"id": "a", "instructionsFile": "be.md"}, {"id": "b"}],
        },
        folder=tmp_path,
    )
    assert problems == []
    assert agents.agent("a").instructions == "Be brief.\n"
    assert agents.agent("b").instructions == "Be kind."


def test_instructions_stand_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "be.md").write_text("Be brief.", encoding="utf-8")
    entry = {"instructions": "a", "instructionsFile": "be.md"}
    assert read({"a": entry}, folder=tmp_path)[1] == [
        "`agents.a` has both `instructions` and `instructionsFile`; write one of them"
    ]


# Models

PROVIDERS = {"local": {"baseUrl": "http://127.0.0.1", "models": [{"id": "small"}, {"id": "big"}]}}


def problems_of_model(model: object, **environment: str) -> list[str]:
    found = read_system(
        {"agents": {"defaults": {"model": model}}, "models": {"providers": PROVIDERS}},
        environment={**HOME, **environment},
        folder=Path("/etc"),
    )
    return [str(problem) for problem in found.problems]


def test_a_model_may_have_others_to_fall_back_on() -> None:
    model = {"primary": "local/big", "fallbacks": ["local/small", "demo/demo"]}
    agents, problems = read({"defaults": {"model": model}}, models={"providers": PROVIDERS})
    agent = agents.agent("main")
    assert problems == []
    assert (agent.model, agent.fallback_models) == ("local/big", ("local/small", "demo/demo"))


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("gpt-6", '`agents.defaults.model` is "gpt-6"; allowed: <provider>/<model>'),
        (7, '`agents.defaults.model` is a number; allowed: "<provider>/<model>", or'),
        ("locl/big", "`models.providers` has no 'locl'; did you mean 'local'?"),
        ("local/bag", "which `models.providers.local.models` lacks; did you mean 'big'?"),
        ({"fallbacks": ["x"]}, '`agents.defaults.model.fallbacks[0]` is "x"; allowed: <provider>'),
    ],
)
def test_a_model_that_nobody_has_is_named_with_the_nearest(model: object, problem: str) -> None:
    (found,) = problems_of_model(model)
    assert problem in found


def test_a_model_whose_provider_has_no_key_is_told_before_it_is_asked() -> None:
    found = read_system(
        {"agents": {"defaults": {"model": "openai/gpt-6"}}}, environment=HOME, folder=Path("/etc")
    )
    (problem,) = found.problems
    assert isinstance(problem, MissingReferenceError)
    assert "set OPENAI_API_KEY, or write `models.providers.openai.apiKey`" in str(problem)
    assert problems_of_model("openai/gpt-6", OPENAI_API_KEY="a") == []


def test_a_key_that_cannot_be_looked_up_is_one_problem() -> None:
    _, problems = read(
        {"defaults": {"model": "openai/gpt-6"}},
        models={"providers": {"openai": {"apiKey": "${MY_KEY}"}}},
    )
    assert len(problems) == 1
    assert "MY_KEY, which is not set" in problems[0]


def warnings_of(document: Mapping[str, Any]) -> list[str]:
    return list(read_system(document, environment=HOME, folder=Path("/etc")).warnings)


def test_rules_for_a_sandbox_need_an_agent_in_one() -> None:
    rules = {"sandbox": {"tools": {"deny": ["write"]}}}
    (warning,) = warnings_of({"tools": rules, "agents": {"a": {}}})
    assert warning.startswith("`tools.sandbox.tools` has no effect: no agent that it applies to")
    one = {"a": {}, "b": {"sandbox": {"mode": "non-main"}}}
    assert warnings_of({"tools": rules, "agents": one}) == []
    own = {"a": {"tools": rules}, "b": {"sandbox": {"mode": "off"}}}
    (warning,) = warnings_of({"agents": own})
    assert warning.startswith("`agents.a.tools.sandbox.tools` has no effect")


def test_a_sandbox_without_rules_is_warned_of() -> None:
    (warning,) = warnings_of({"agents": {"defaults": {"sandbox": {"mode": "all"}}}})
    assert "`sandbox.mode` of the agent main has no effect" in warning


@pytest.mark.parametrize(
    ("mode", "main", "other"),
    [("off", False, False), ("non-main", False, True), ("all", True, True)],
)
def test_the_mode_decides_which_sessions_are_sandboxed(mode: str, main: bool, other: bool) -> None:
    agents, _ = read({"defaults": {"sandbox": {"mode": "all"}}, "a": {"sandbox": {"mode": mode}}})
    agent = agents.agent("a")
    assert (agent.is_sandboxed("main"), agent.is_sandboxed("")) == (main, other)
