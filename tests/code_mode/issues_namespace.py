"""A namespace over two tools of a plugin, for tests of what namespaces are and do."""

from collections.abc import Mapping
from typing import Any

from nacre.code_mode.namespaces import CreateScope, Namespace, NamespaceContext, namespace_tool
from nacre.tools.definition import Tool
from tests.code_mode.simple_tools import simple_tool


def issue_functions(context: NamespaceContext) -> Mapping[str, object]:
    return {
        "session": context.session_id,
        "list": namespace_tool("list_issues"),
        "update": namespace_tool(
            "update_issue", lambda args: {"number": args[0], "patch": args[1]}
        ),
        "labels": {"all": namespace_tool("list_issues", lambda args: {"labels": True})},
    }


def issues(
    *,
    id: str = "github-issues",
    global_name: str = "Issues",
    required_tool_names: tuple[str, ...] = ("list_issues", "update_issue"),
    create_scope: CreateScope = issue_functions,
    prompt: str = "",
) -> Namespace:
    return Namespace(
        id=id,
        global_name=global_name,
        description="GitHub issues.",
        required_tool_names=required_tool_names,
        create_scope=create_scope,
        prompt=prompt,
    )


def github_tools(**options: Any) -> list[Tool]:
    options.setdefault("owner", "github")
    return [simple_tool(name, **options) for name in ("list_issues", "update_issue")]
