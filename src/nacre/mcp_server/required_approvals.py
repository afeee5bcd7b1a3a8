"""`requireApproval` of the configured servers, as a hook."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from nacre.hooks import AskApproval
from nacre.tools.tool_servers import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nacre.config.mcp import McpServerConfig
    from nacre.hooks import BeforeToolCall


def required_approvals(
    configs: Iterable[McpServerConfig],
) -> Mapping[str, Callable[[BeforeToolCall], AskApproval | None]]:
    """Asks a person before a tool of a server is called whose name matches one of its patterns."""
    patterns = {config.name: config.require_approval for config in configs}

    def before_tool_call(event: BeforeToolCall) -> AskApproval | None:
        source, _, rest = event.tool_id.partition(":")
        server, _, tool = rest.partition(":")
        if source != "mcp":
            return None
        # Reading a resource or a prompt is named `resources.read`, as programs name it.
        name = tool.removeprefix(OPERATION_MARK)
        if any(fnmatchcase(name, pattern) for pattern in patterns.get(server, ())):
            return AskApproval(f"the configuration of {server} asks for it")
        return None

    return {"before_tool_call": before_tool_call}
