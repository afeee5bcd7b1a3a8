"""Which tools the model is shown: all of a run's, or `exec`, `wait` and the direct-only ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.code_mode.control_tools import exec_parameters, wait_parameters
from nacre.code_mode.description import WAIT_DESCRIPTION, exec_description
from nacre.code_mode.run_config import is_code_mode_active
from nacre.tools import DefinitionFormat, format_definition, format_tool, split_direct_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.code_mode.namespaces import Namespace
    from nacre.config import CodeModeConfig
    from nacre.json_types import JsonObject
    from nacre.tools import Catalog, Tool

EXEC_NAME: Final = "exec"
WAIT_NAME: Final = "wait"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSurface:
    """What a run's tools became: those that the model is shown, and those that programs call."""

    is_code_mode: bool
    direct_tools: tuple[Tool, ...]
    """Shown to the model as they are; in code mode only those that no catalog can hold."""
    cataloged: tuple[Tool, ...]

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of a sound payload to the model."""
        direct = tuple(tool.name for tool in self.direct_tools)
        return (EXEC_NAME, WAIT_NAME, *direct) if self.is_code_mode else direct

    def definitions(
        self,
        format: DefinitionFormat,
        *,
        config: CodeModeConfig,
        catalog: Catalog,
        namespaces: Sequence[Namespace],
        mcp_servers: Sequence[str],
    ) -> list[JsonObject]:
        """The payload itself, in the shape of a provider."""
        direct = [format_tool(tool, format) for tool in self.direct_tools]
        if not self.is_code_mode:
            return direct
        described = exec_description(
            catalog=catalog,
            namespaces=namespaces,
            mcp_servers=mcp_servers,
            name_index_bytes=config.name_index_bytes,
            languages=config.languages,
        )
        return [
            format_definition(EXEC_NAME, described, exec_parameters(config), format),
            format_definition(WAIT_NAME, WAIT_DESCRIPTION, wait_parameters(), format),
            *direct,
        ]


def visible_tools(
    tools: Sequence[Tool],
    *,
    config: CodeModeConfig,
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> ModelSurface:
    """The surface of a run whose tools, after policy, are `tools`; servers may bring more.

    Raises CatalogError when a tool that has to be shown beside `exec` and `wait` is named like one.
    """
    is_active = is_code_mode_active(
        config, tools=tools, has_servers=has_servers, tools_disabled=tools_disabled
    )
    if not is_active:
        shown = () if tools_disabled else tuple(tools)
        return ModelSurface(is_code_mode=False, direct_tools=shown, cataloged=())
    direct, cataloged = split_direct_tools(
        tools, controls=(EXEC_NAME, WAIT_NAME), owner="code mode"
    )
    return ModelSurface(is_code_mode=True, direct_tools=direct, cataloged=cataloged)
