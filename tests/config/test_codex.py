"""`plugins.entries.codex` and `agentRuntime`: defaults, modes, overrides, choice of the harness."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nacre.config import (
    AppServerConfig,
    CodexConfig,
    HookRelayConfig,
    choose_runtime,
    find_codex_home,
)
from nacre.config.system import SystemReading, read_system
from tests.contract.requirements import requirement


def read(document: Mapping[str, Any], **environment: str) -> SystemReading:
    return read_system(document, environment={"HOME": "/home/ada", **environment}, folder=Path("/"))


def read_codex(config: Mapping[str, Any], **environment: str) -> SystemReading:
    return read({"plugins": {"entries": {"codex": {"config": config}}}}, **environment)


def read_server(settings: Mapping[str, Any], **environment: str) -> AppServerConfig:
    return read_codex({"appServer": settings}, **environment).config.codex.app_server


def test_without_an_entry_codex_is_usable_but_not_chosen() -> None:
    assert read({}).config.codex == CodexConfig(
        is_enabled=False,
        refusal="",
        homes=Path("/home/ada/.local/state/nacre/codex"),
        app_server=AppServerConfig(
            approval_policy="never", sandbox="danger-full-access", approvals_reviewer="user"
        ),
        hook_relay=HookRelayConfig(),
    )


def test_a_mode_sets_the_permissions_and_a_written_field_goes_over_it() -> None:
    guardian = read_server({"mode": "guardian"})
    assert (guardian.approval_policy, guardian.sandbox, guardian.approvals_reviewer) == (
        "on-request",
        "workspace-write",
        "auto_review",
    )
    mixed = read_server({"mode": "guardian", "sandbox": "read-only", "serviceTier": "fast"})
    assert (mixed.approval_policy, mixed.sandbox) == ("on-request", "read-only")
    assert mixed.service_tier == "priority"
    assert read_server({"approvalsReviewer": "guardian_subagent"}).approvals_reviewer == (
        "auto_review"
    )
    assert [read_server(it).has_own_policy for it in ({}, {"mode": "yolo"})] == [False, True]


def test_variables_override_settings_by_their_own_and_by_the_original_names() -> None:
    server = read_server(
        {"command": "codex", "mode": "yolo"},
        NACRE_CODEX_APP_SERVER_BIN="/opt/codex",
        OPENCLAW_CODEX_APP_SERVER_BIN="/elsewhere/codex",
        OPENCLAW_CODEX_APP_SERVER_ARGS="app-server -c 'a = \"b c\"'",
        NACRE_CODEX_APP_SERVER_MODE="guardian",
        NACRE_CODEX_APP_SERVER_SANDBOX="read-only",
    )
    assert server.command == "/opt/codex"
    assert server.args == ("app-server", "-c", 'a = "b c"')
    assert (server.approval_policy, server.sandbox) == ("on-request", "read-only")

    found = read_codex({}, NACRE_CODEX_APP_SERVER_APPROVAL_POLICY="sometimes")
    assert [str(it) for it in found.problems] == [
        '`NACRE_CODEX_APP_SERVER_APPROVAL_POLICY` is "sometimes"; allowed: "never", '
        '"on-request", "on-failure", "untrusted"'
    ]


def test_settings_that_make_no_sense_here_are_accepted_and_named() -> None:
    found = read_codex(
        {
            "computerUse": {"autoInstall": True},
            "codexPlugins": {"enabled": True, "allow_destructive_actions": "ask", "plugins": {}},
            "appServer": {
                "transport": "websocket",
                "url": "wss://codex.example",
                "turnCompletionIdleTimeoutMs": 1,
                "experimental": {"sandboxExecServer": True},
            },
        }
    )
    assert found.problems == ()
    named = [
        warning.split("`")[1].removeprefix("plugins.entries.codex.") for warning in found.warnings
    ]
    assert named == [
        "config.computerUse",
        "config.codexPlugins.allow_destructive_actions",
        "config.codexPlugins.plugins",
        "config.appServer.url",
        "config.appServer.turnCompletionIdleTimeoutMs",
        "config.appServer.experimental",
        "config.appServer.transport",
    ]


def test_an_unknown_setting_of_codex_is_a_problem() -> None:
    found = read_codex({"appServer": {"comand": "codex"}})
    assert [str(it) for it in found.problems] == [
        '`plugins.entries.codex.config.appServer` has the unknown key "comand"; '
        "did you mean `command`?"
    ]


def test_an_agent_has_a_home_of_its_own_unless_the_user_shares_theirs() -> None:
    own, shared = (
        read_codex({"appServer": {"homeScope": scope}}).config.codex for scope in ("agent", "user")
    )
    environment = {"HOME": "/home/ada"}
    assert find_codex_home(own, "Helper", environment) == own.homes / "helper"
    assert find_codex_home(shared, "Helper", environment) == Path("/home/ada/.codex")


CODEX, BUILT_IN, AUTO = ({"agentRuntime": {"id": it}} for it in ("codex", "openclaw", "auto"))


@requirement("codex:harness-by-model-reference")
@pytest.mark.parametrize(
    ("document", "runtime"),
    [
        ({}, "openclaw"),
        ({"entry": {"enabled": True}}, "codex"),
        ({"entry": {"enabled": True}, "deny": ["codex"]}, "openclaw"),
        ({"entry": {"enabled": True}, "provider": {"baseUrl": "https://a.example"}}, "openclaw"),
        ({"entry": {"enabled": True}, "provider": {"headers": {"x-org": "a"}}}, "openclaw"),
        ({"entry": {"enabled": True}, "provider": {"api": "openai-completions"}}, "openclaw"),
        ({"entry": {"enabled": True}, "provider": BUILT_IN}, "openclaw"),
        ({"provider": CODEX}, "codex"),
        ({"provider": {**CODEX, "baseUrl": "https://a.example"}}, "codex"),
        ({"provider": {**CODEX, "models": [{"id": "gpt-6", **BUILT_IN}]}}, "openclaw"),
        ({"provider": {**BUILT_IN, "models": [{"id": "gpt-6", **CODEX}]}}, "codex"),
        ({"provider": {**CODEX, "models": [{"id": "gpt-6", **AUTO}]}}, "openclaw"),
        ({"provider": CODEX, "uses": {"openai/gpt-6": BUILT_IN}}, "openclaw"),
        ({"provider": BUILT_IN, "uses": {"openai/*": CODEX}}, "codex"),
        ({"uses": {"openai/*": BUILT_IN, "openai/gpt-6": CODEX}}, "codex"),
        ({"uses": {"openai/gpt-6": CODEX}, "own": {"openai/gpt-6": BUILT_IN}}, "openclaw"),
    ],
)
def test_the_harness_is_that_of_the_model_then_of_the_provider_then_auto(
    document: Mapping[str, Any], runtime: str
) -> None:
    found = read(
        {
            "models": {"providers": {"openai": {"apiKey": "k", **document.get("provider", {})}}},
            "agents": {
                "defaults": {"model": "openai/gpt-6", "models": document.get("uses", {})},
                "list": [{"id": "main", "models": document.get("own", {})}],
            },
            "plugins": {
                "deny": document.get("deny", []),
                "entries": {"codex": document.get("entry", {})},
            },
        }
    )
    assert found.problems == ()
    config = found.config
    agent = config.agents.agent("main")
    assert choose_runtime(agent.model, agent, config.models, config.codex).id == runtime


@pytest.mark.parametrize(
    ("runtime", "fallbacks", "warning"),
    [
        (CODEX, ["openai/gpt-5"], "`agents.defaults.model.fallbacks` has no effect while"),
        (CODEX, [], ""),
        (BUILT_IN, ["openai/gpt-5"], ""),
    ],
)
def test_fallbacks_of_a_model_in_codex_are_named_as_without_effect(
    runtime: Mapping[str, Any], fallbacks: list[str], warning: str
) -> None:
    model = {"primary": "openai/gpt-6", "fallbacks": fallbacks}
    found = read(
        {
            "models": {"providers": {"openai": {"apiKey": "k", **runtime}}},
            "agents": {"defaults": {"model": model}, "list": [{"id": "a"}, {"id": "b"}]},
        }
    )
    assert found.problems == ()
    assert len(found.warnings) == bool(warning)
    assert "".join(found.warnings).startswith(warning)


def test_an_entry_that_is_turned_off_says_why_no_turn_runs_in_codex() -> None:
    off = read({"plugins": {"entries": {"codex": {"enabled": False}}}})
    assert off.config.codex.refusal == "`plugins.entries.codex.enabled` is false"
    denied = read({"plugins": {"deny": ["cod*"]}})
    assert denied.config.codex.refusal == "`plugins.deny` has 'cod*'"
