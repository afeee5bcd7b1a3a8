"""Whether a run is in code mode, and with which settings: the global ones under its agent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nacre.config.code_mode import CodeModeConfig, code_mode_config_from
from nacre.config.documents import tool_settings
from nacre.tools.catalog import is_control_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.tools.definition import Tool


def is_code_mode_active(
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model is shown `exec` and `wait`; `tools` is what policy left of this run's.

    A run without tools has nothing to hide, so it stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def code_mode_config_for(config: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    """The settings of one agent: `tools.codeMode`, and over it, key by key, the agent's own.

    An agent is an entry of `agents.list` by its `id`, or a member of `agents` by its name. A
    boolean only switches code mode on or off. Raises ConfigError with the path of the setting.
    """
    merged: dict[str, object] = {}
    for path, value in tool_settings(config, agent_id, "codeMode"):
        merged.update(_read_settings(value, path))
    return code_mode_config_from(merged)


def _read_settings(value: object, path: str) -> dict[str, object]:
    # Read for its own path, so that a fault is reported where it was made.
    code_mode_config_from(value, path=path)
    if isinstance(value, bool):
        return {"enabled": value}
    return dict(cast("Mapping[str, object]", value or {}))
