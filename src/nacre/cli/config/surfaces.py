"""Settings of code mode and Tool Search that have no effect, though nothing is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.code_mode.run_config import code_mode_config_for
from nacre.config.documents import tool_settings
from nacre.config.fields import is_object
from nacre.errors import ConfigError
from nacre.tool_search import tool_search_config_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def surface_warnings(document: Mapping[str, object], agent_ids: Iterable[str]) -> list[str]:
    """What a person should know; nothing where the settings themselves are at fault."""
    warnings: list[str] = []
    unused: dict[str, bool] = {}
    for agent_id in agent_ids:
        try:
            is_code_mode = code_mode_config_for(document, agent_id).enabled
            is_tool_search = tool_search_config_for(document, agent_id).enabled
        except ConfigError:
            continue
        for path in _waiting_for_a_switch(document, agent_id):
            # What the agents share is used if one of them uses it.
            unused[path] = unused.get(path, True) and not is_code_mode
        if is_code_mode and is_tool_search:
            warnings.append(
                f"`tools.toolSearch` has no effect for the agent {agent_id}: "
                "`tools.codeMode` is on as well, and goes before it"
            )
    for path, is_unused in unused.items():
        if is_unused:
            warnings.append(f"`{path}` has no effect: code mode needs `enabled: true` in it")
    return warnings


def _waiting_for_a_switch(document: Mapping[str, object], agent_id: str) -> list[str]:
    return [
        path
        for path, value in tool_settings(document, agent_id, "codeMode")
        if is_object(value) and value and "enabled" not in value
    ]
