"""Bytes of tool definitions: those of the servers themselves against those that Nacre shows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.mcp_servers import ServerSurvey
    from nacre.json_types import JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerBytes:
    """What one server's list of tools takes."""

    name: str
    tool_count: int
    definition_bytes: int
    problem: str
    """Why it could not be asked; its tools are then not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    """What a client holds before and after."""

    servers: tuple[ServerBytes, ...]
    shown_names: tuple[str, ...]
    shown_bytes: int

    @property
    def tool_count(self) -> int:
        return sum(server.tool_count for server in self.servers)

    @property
    def definition_bytes(self) -> int:
        return sum(server.definition_bytes for server in self.servers)

    @property
    def saved_percent(self) -> float:
        """Below zero where the servers have so few tools that two cost more."""
        if not self.definition_bytes:
            return 0.0
        return 100 * (1 - self.shown_bytes / self.definition_bytes)

    @property
    def is_complete(self) -> bool:
        return not any(server.problem for server in self.servers)

    def to_json(self) -> JsonObject:
        return {
            "servers": [
                {
                    "name": server.name,
                    "tools": server.tool_count,
                    "bytes": server.definition_bytes,
                    "problem": server.problem,
                }
                for server in self.servers
            ],
            "tools": self.tool_count,
            "bytes": self.definition_bytes,
            "shownTools": list(self.shown_names),
            "shownBytes": self.shown_bytes,
            "savedPercent": round(self.saved_percent, 2),
        }


def savings_from(surveys: Sequence[ServerSurvey], shown: Sequence[JsonObject]) -> Savings:
    """`shown` are the definitions that a client of `nacre mcp` sees instead."""
    return Savings(
        servers=tuple(_server_bytes(survey) for survey in surveys if survey.state != "disabled"),
        shown_names=tuple(str(tool.get("name")) for tool in shown),
        shown_bytes=definition_bytes(shown),
    )


def definition_bytes(definitions: Sequence[JsonObject]) -> int:
    """As compact JSON in UTF-8, which is how `tools/list` carries them."""
    return sum(
        len(
            json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "surrogatepass"
            )
        )
        for shown in definitions
    )


def _server_bytes(survey: ServerSurvey) -> ServerBytes:
    return ServerBytes(
        name=survey.name,
        tool_count=len(survey.tools),
        definition_bytes=survey.listed_bytes,
        problem=survey.problem if survey.state == "broken" else "",
    )
