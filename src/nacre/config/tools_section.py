"""A `tools` section as a whole: rules, code mode, Tool Search, and the core tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config.code_mode import FIELDS, CodeModeConfig, code_mode_config_from
from nacre.config.core_tools import read_core_tools
from nacre.config.tool_search import KEYS, ToolSearchConfig, tool_search_config_from

if TYPE_CHECKING:
    from nacre.config.core_tools import CoreToolsConfig
    from nacre.config.section import Section

_PATTERNS: Final = "names, ids or owners of tools; `*` and `?` are wildcards"


def read_tools(tools: Section) -> CoreToolsConfig:
    """Read every layer of `tools`; faults are noted.

    What rules, code mode and Tool Search make of theirs is not kept: they read it for each run.
    """
    _check_rules(tools)
    _check_rules(tools.section("sandbox").section("tools"))
    reading = tools.reading
    for found in tools.all_of("codeMode", default=False, allowed="true, false and an object"):
        reading.attempt(
            lambda found=found: code_mode_config_from(found.value, path=found.path),
            CodeModeConfig(),
        )
    for found in tools.all_of("toolSearch", default=False, allowed="true, false and an object"):
        reading.attempt(
            lambda found=found: tool_search_config_from(found.value, path=found.path),
            ToolSearchConfig(),
        )
    for key, members in (("codeMode", FIELDS), ("toolSearch", KEYS)):
        for member in members:
            reading.know(tools.path_of(key), member)
    return read_core_tools(tools)


def _check_rules(rules: Section) -> None:
    # An empty list would allow nothing, so it is not what stands for a missing one.
    rules.find("allow", default=None, allowed=f"a list of {_PATTERNS}")
    for key in ("allow", "deny", "alsoAllow"):
        rules.texts(key, allowed=_PATTERNS)
