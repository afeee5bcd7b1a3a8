"""What an app-server has: its login, models and requirements, and whether an agent can use it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.codex_harness.app_server import AppServers, plan_launch
from nacre.codex_harness.client import is_unsupported
from nacre.config import find_codex_home
from nacre.errors import AppServerError, AppServerTimeoutError, CodexError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.codex_harness.client import AppServerClient
    from nacre.config import CodexConfig
    from nacre.json_types import JsonObject

logger = logging.getLogger(__name__)

_MAX_MODELS: Final = 200


async def read_account(client: AppServerClient) -> JsonObject | None:
    """The account that Codex is logged in with; None if there is none."""
    answer = await client.request("account/read", {})
    account = answer.get("account") if isinstance(answer, dict) else None
    return account if isinstance(account, dict) else None


async def log_in(client: AppServerClient, api_key: str, *, may_store: bool) -> None:
    """Log in with the API key of Nacre, unless Codex has a login of its own.

    Raises CodexError if there is neither. Codex stores the key in its home.
    """
    account = await read_account(client)
    if account is not None and (account.get("type") != "apiKey" or not api_key):
        return
    if not api_key or not may_store:
        if account is not None:
            return
        raise CodexError(
            "Codex is not logged in to OpenAI; run `nacre codex login`, or set OPENAI_API_KEY"
        )
    await client.request("account/login/start", {"type": "apiKey", "apiKey": api_key})


async def list_models(client: AppServerClient, codex: CodexConfig) -> frozenset[str]:
    """The models that Codex knows; empty if it does not tell."""
    if not codex.is_discovery_enabled:
        return frozenset()
    try:
        answer = await client.request(
            "model/list",
            {"includeHidden": True, "limit": _MAX_MODELS},
            timeout_seconds=codex.discovery_timeout_seconds,
        )
    except (AppServerError, AppServerTimeoutError) as error:
        logger.info("the models of Codex are not known: %s", error)
        return frozenset()
    listed = answer.get("data") if isinstance(answer, dict) else None
    models = listed if isinstance(listed, list) else []
    return frozenset(str(it["model"]) for it in models if isinstance(it, dict) and "model" in it)


async def find_hook_ban(client: AppServerClient) -> str:
    """Why Codex does not run the hooks of its clients: the setting of an administrator; empty if it
    runs them. It would ignore them without a word."""
    try:
        answer = await client.request("configRequirements/read", {})
    except AppServerError as error:
        if is_unsupported(error):
            return ""
        raise
    found = answer.get("requirements") if isinstance(answer, dict) else None
    requirements = found if isinstance(found, dict) else {}
    if requirements.get("allowManagedHooksOnly") is True:
        return "`allow_managed_hooks_only` is true"
    features = requirements.get("featureRequirements")
    if isinstance(features, dict) and features.get("hooks") is False:
        return "`features.hooks` is false"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodexHealth:
    """Whether Codex can be used by an agent."""

    agent_id: str
    home: Path
    program: str = ""
    version: str = ""
    account: str = ""
    """How it is logged in to OpenAI; empty if it is not."""
    problem: str = ""
    """Why it cannot be used."""

    def to_json(self) -> JsonObject:
        return {
            "agent": self.agent_id,
            "home": str(self.home),
            "program": self.program,
            "version": self.version,
            "account": self.account,
            "problem": self.problem,
        }


async def examine_codex(
    codex: CodexConfig, agent_id: str, environment: Mapping[str, str]
) -> CodexHealth:
    """Start the app-server of an agent and ask for its version and its login."""
    health = CodexHealth(agent_id=agent_id, home=find_codex_home(codex, agent_id, environment))
    try:
        launch = await anyio.to_thread.run_sync(plan_launch, codex, agent_id, environment)
        health = replace(health, program=launch.command[0])
        async with AppServers() as servers, servers.use(codex, agent_id) as client:
            health = replace(health, version=str(client.version))
            account = await read_account(client)
    except CodexError as error:
        return replace(health, problem=str(error))
    return replace(health, account=describe_account(account))


def describe_account(account: JsonObject | None) -> str:
    """The kind of login, with the address and the plan if it has them; empty for none."""
    names = [account.get(name) for name in ("type", "email", "planType")] if account else []
    return ", ".join(str(name) for name in names if name)
