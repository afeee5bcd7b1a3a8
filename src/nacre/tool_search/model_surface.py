"""Which tools the model is shown: all of a run's, or the controls of Tool Search before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nacre.errors import CatalogError
from nacre.tool_search.control_tools import CONTROLS, CONTROLS_BY_MODE
from nacre.tools.catalog import is_control_tool
from nacre.tools.tool_definitions import DefinitionFormat, definition, definition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.tool_search import Mode, ToolSearchConfig
    from nacre.json_types import JsonObject
    from nacre.tools import Tool

SurfaceMode = Literal["code", "tools", "direct"]
"""`direct`: Tool Search is not active, and the model sees the tools themselves."""

_MAX_OWNER_CHARACTERS: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSurface:
    """What a run's tools became: those that the model is shown, and those that it can find."""

    mode: SurfaceMode
    direct_tools: tuple[Tool, ...]
    """Shown as they are; where Tool Search is active, only those that no catalog can hold."""
    cataloged: tuple[Tool, ...]
    server_names: tuple[str, ...] = ()

    @property
    def control_names(self) -> tuple[str, ...]:
        return () if self.mode == "direct" else CONTROLS_BY_MODE[self.mode]

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of a sound payload to the model."""
        return (*self.control_names, *(tool.name for tool in self.direct_tools))

    def definitions(self, format: DefinitionFormat, config: ToolSearchConfig) -> list[JsonObject]:
        """The payload itself, in the shape of a provider."""
        owners = _owner_text([*(tool.owner for tool in self.cataloged), *self.server_names])
        controls = [
            definition(
                name,
                CONTROLS[name].description.format(owners=owners),
                CONTROLS[name].parameters(config),
                format,
            )
            for name in self.control_names
        ]
        return [*controls, *(definition_of(tool, format) for tool in self.direct_tools)]


def is_tool_search_active(
    config: ToolSearchConfig,
    *,
    is_code_mode: bool,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model is shown the controls; `tools` is what policy left of this run's.

    Code mode goes first, and a run without tools stays without tools.
    """
    if not config.enabled or is_code_mode or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def searchable_surface(
    tools: Sequence[Tool], *, mode: Mode, server_names: Sequence[str]
) -> ModelSurface:
    """Raises CatalogError when a tool that has to be shown is named like one of the controls."""
    usable = [tool for tool in tools if not is_control_tool(tool)]
    direct = tuple(tool for tool in usable if tool.catalog_mode == "direct-only")
    _refuse_equal_names(direct, mode)
    return ModelSurface(
        mode=mode,
        direct_tools=direct,
        cataloged=tuple(tool for tool in usable if tool.catalog_mode != "direct-only"),
        server_names=tuple(server_names),
    )


def direct_surface(tools: Sequence[Tool]) -> ModelSurface:
    return ModelSurface(mode="direct", direct_tools=tuple(tools), cataloged=())


def _refuse_equal_names(direct: Sequence[Tool], mode: Mode) -> None:
    taken = dict.fromkeys(CONTROLS_BY_MODE[mode], "Tool Search")
    for tool in direct:
        if tool.name in taken:
            raise CatalogError(
                f"the direct-only tool {tool.id} cannot be shown to the model: its name "
                f"{tool.name!r} belongs to {taken[tool.name]}"
            )
        taken[tool.name] = tool.id


def _owner_text(owners: Sequence[str]) -> str:
    """Who provides what can be found: a model that knows it searches for the right things."""
    distinct = list(dict.fromkeys(owners))
    shown: list[str] = []
    left = _MAX_OWNER_CHARACTERS
    for owner in distinct:
        left -= len(owner) + 2
        if left < 0:
            break
        shown.append(owner)
    more = len(distinct) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
