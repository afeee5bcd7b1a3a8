"""What a gateway says when it answers: where it is, and what to try, in lines that work."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final

from nacre.agent.surfaces import planned_surface
from nacre.config import DEFAULT_MODEL, TOKEN_VARIABLE

if TYPE_CHECKING:
    from nacre.gateway.server import Served
    from nacre.json_types import JsonObject

_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_FIRST_TEXT: Final = "What is 6 * 7?"
_SECOND_TEXT: Final = "Which tools are there?"
_JSON_HEADER: Final = "-H 'Content-Type: application/json'"


def welcome_json(served: Served) -> JsonObject:
    """For programs; the token itself is in its file and nowhere else."""
    return {
        "url": served.url,
        "pid": os.getpid(),
        "model": _model(served),
        "sessions": served.place,
        "auth": served.config.gateway.auth_mode,
        "tokenFile": str(served.token_file) if served.token_file else None,
    }


def welcome_text(served: Served, config_file: str) -> str:
    """For people; an empty `config_file` if there is none."""
    agent = served.config.agents.agent(served.config.agents.default_id)
    lines = [
        f"Nacre gateway at {served.url}{_about_reach(served)} (Ctrl-C ends it)",
        "",
        f"  model      {_model(served)}{_about_demo(served)}",
        f"  surface    {_surface(served, config_file)}",
        f"  config     {config_file or 'none: embedded defaults, with code mode on'}",
        f"  sessions   {served.place}",
        f"  workspace  {agent.workspace}",
        f"  token      {_about_token(served)}",
        "",
        "Open:",
        f"  {served.url}/openapi.json",
        "",
        "Try, in another terminal:",
        *(f"  {line}" for line in commands_to_try(served)),
        "",
    ]
    return "\n".join(lines)


def commands_to_try(served: Served) -> list[str]:
    """For a shell, in this order."""
    header = ""
    lines: list[str] = []
    if served.config.gateway.auth_mode == "token":
        header = ' -H "Authorization: Bearer $TOKEN"'
        lines.append(f"TOKEN={_token(served)}")
    chat = f'{{"model":"nacre","messages":[{{"role":"user","content":"{_FIRST_TEXT}"}}]}}'
    started = f'{{"text":"{_SECOND_TEXT}","sessionKey":"first"}}'
    return [
        *lines,
        f"curl -s {served.url}/v1/chat/completions{header} {_JSON_HEADER} -d '{chat}'",
        f"RUN=$(curl -s {served.url}/api/runs{header} {_JSON_HEADER} -d '{started}' "
        """| sed 's/.*"runId":"\\([^"]*\\)".*/\\1/')""",
        f"curl -sN {served.url}/api/runs/$RUN/events{header}",
    ]


def _token(served: Served) -> str:
    if served.token_file is not None:
        return f'"$(cat {shlex.quote(str(served.token_file))})"'
    if os.environ.get(TOKEN_VARIABLE, "").strip() == served.config.gateway.token:
        return f'"${TOKEN_VARIABLE}"'
    return "'the token of gateway.auth.token'"


def _about_token(served: Served) -> str:
    if served.config.gateway.auth_mode == "none":
        return "none is needed: gateway.auth.mode is none"
    if served.token_file is not None:
        return str(served.token_file)
    return "as configured"


def _model(served: Served) -> str:
    return served.config.agents.agent(served.config.agents.default_id).model


def _about_reach(served: Served) -> str:
    host = served.config.gateway.host
    return f", and at all addresses of this machine ({host})" if host in _ANY_ADDRESS else ""


def _surface(served: Served, config_file: str) -> str:
    """How the default agent's model sees its tools, and how code mode is switched on."""
    config = served.config
    file = f" --config {shlex.quote(config_file)}" if config_file else ""
    how = f"; for code mode: nacre config set{file} tools.codeMode.enabled true"
    match planned_surface(config.agents.agent(config.agents.default_id)):
        case "code_mode":
            return "code mode: the model sees `exec` and `wait`, programs call the tools"
        case "tool_search":
            return f"tool search: the model looks its tools up{how}"
        case "direct":
            return f"the model sees all of its tools{how}"


def _about_demo(served: Served) -> str:
    if _model(served) != DEFAULT_MODEL:
        return ""
    return ": a demonstration without intelligence; set agents.defaults.model for a real one"
