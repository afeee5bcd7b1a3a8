"""Modes, fields that override them, and the promotion of the default policy."""

from pathlib import Path
from typing import Any

import pytest

from nacre.codex_harness.permissions import NativePermissions, resolve_permissions
from nacre.config import system_config_from
from tests.contract.requirements import requirement

YOLO = ("never", "danger-full-access", "user")
GUARDIAN = ("on-request", "workspace-write", "auto_review")


def resolve(
    tmp_path: Path,
    app_server: dict[str, Any],
    *,
    has_call_hooks: bool = False,
    exec_tool: dict[str, Any] | None = None,
) -> NativePermissions:
    document = {
        "plugins": {"entries": {"codex": {"enabled": True, "config": {"appServer": app_server}}}},
        "tools": {"exec": exec_tool or {}},
    }
    config = system_config_from(document, environment={}, folder=tmp_path)
    agent = config.agents.agent(config.agents.default_id)
    return resolve_permissions(config.codex.app_server, agent, has_call_hooks=has_call_hooks)


def triple(found: NativePermissions) -> tuple[str, str, str]:
    return found.approval_policy, found.sandbox, found.reviewer


@requirement("codex:policy-promotion")
@pytest.mark.parametrize(
    ("app_server", "expected"),
    [
        ({}, YOLO),
        ({"mode": "yolo"}, YOLO),
        ({"mode": "guardian"}, GUARDIAN),
        ({"mode": "guardian", "sandbox": "read-only"}, ("on-request", "read-only", "auto_review")),
        ({"mode": "guardian", "approvalPolicy": "never"}, ("never", *GUARDIAN[1:])),
        (
            {"approvalsReviewer": "guardian_subagent"},
            ("never", "danger-full-access", "auto_review"),
        ),
    ],
)
def test_a_field_overrides_what_the_mode_gives(
    tmp_path: Path, app_server: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    found = resolve(tmp_path, app_server)
    assert triple(found) == expected
    assert found.asks_people == (expected[:2] != YOLO[:2])


@requirement("codex:policy-promotion")
def test_the_default_policy_is_promoted_where_hooks_want_to_see_calls(tmp_path: Path) -> None:
    found = resolve(tmp_path, {}, has_call_hooks=True)
    assert triple(found) == ("untrusted", "danger-full-access", "user")
    # The hooks decide; nobody wrote that people have to be asked.
    assert (found.is_promoted, found.asks_people) == (True, False)


def test_a_written_rule_for_commands_asks_people(tmp_path: Path) -> None:
    found = resolve(tmp_path, {}, exec_tool={"ask": "always"})
    assert (found.approval_policy, found.asks_people) == ("untrusted", True)


@pytest.mark.parametrize(
    ("app_server", "exec_tool"),
    [
        ({"mode": "yolo"}, {}),
        ({"approvalPolicy": "never"}, {}),
        ({}, {"ask": "never"}),
    ],
)
def test_a_written_choice_is_not_promoted(
    tmp_path: Path, app_server: dict[str, Any], exec_tool: dict[str, Any]
) -> None:
    found = resolve(tmp_path, app_server, has_call_hooks=True, exec_tool=exec_tool)
    assert (found.approval_policy, found.is_promoted) == ("never", False)
    assert not found.asks_people


def test_a_stricter_policy_stays_as_it_is(tmp_path: Path) -> None:
    found = resolve(tmp_path, {"mode": "guardian"}, has_call_hooks=True)
    assert (triple(found), found.is_promoted) == (GUARDIAN, False)
