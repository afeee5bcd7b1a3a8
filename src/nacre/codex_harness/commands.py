"""The chat command `/codex`: threads, settings and facts of Codex, for the owner.

All requests go through the app-server that runs the turns: a second process could not use a thread
that the first has open.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from nacre.agent import ChatCommand, TurnRequest
from nacre.codex_harness.account import describe_account, read_account
from nacre.codex_harness.client import is_unsupported, refuse_request
from nacre.codex_harness.feedback import CodexFeedback, FeedbackCommand
from nacre.codex_harness.hook_relay import make_generation
from nacre.codex_harness.model_route import find_route, find_thread_route
from nacre.codex_harness.threads import LiveThread, ThreadBinding
from nacre.config import choose_runtime
from nacre.errors import AppServerError, CodexError
from nacre.json_types import encode_json, get_objects, get_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from nacre.agent import CommandCall
    from nacre.codex_harness.client import AppServerClient
    from nacre.codex_harness.harness import CodexHarness
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import SessionRecord

_MAX_LISTED: Final = 20
_MAX_SHOWN_CHARACTERS: Final = 100
_STANDARD_TIER: Final = "standard"
# Threads of Nacre and of the Codex program; by default, those of app-servers are left out.
_SOURCES: Final = ("cli", "vscode", "exec", "appServer")

_YOLO: Final = "let Codex run everything in this session without asking"
_FEEDBACK: Final = "send Codex's feedback about the thread to OpenAI"

_Handler: TypeAlias = "Callable[[_Call], Awaitable[str]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """One use of a subcommand."""

    command: CommandCall
    arguments: str

    @property
    def session(self) -> SessionRecord:
        """The session; raises CodexError if there is none."""
        session = self.command.session
        if session is None:
            raise CodexError("this conversation has no session yet; send a message first")
        return session

    @property
    def model(self) -> str:
        session = self.command.session
        chosen = session.model if session is not None else ""
        return self.command.request.model or chosen or self.command.agent.model

    def with_session(self, session: SessionRecord | None) -> _Call:
        """The same call, with the session as it is now."""
        return replace(self, command=replace(self.command, session=session))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subcommand:
    handler: _Handler
    arguments: str
    description: str


class CodexCommands:
    """The subcommands of `/codex`."""

    def __init__(self, harness: CodexHarness) -> None:
        self._harness = harness
        self._feedback = FeedbackCommand(CodexFeedback(harness.servers))
        rows: Sequence[tuple[_Handler, str, str, str]] = (
            (self._help, "help", "", "list the subcommands"),
            (self._status, "status", "", "show the app-server, the account and the thread"),
            (self._models, "models", "", "list the models of Codex"),
            (self._account, "account", "", "show the login and its rate limits"),
            (self._mcp, "mcp", "", "list the MCP servers of Codex"),
            (self._skills, "skills", "", "list the skills of Codex"),
            (
                self._plugins,
                "plugins",
                "[enable|disable <plugin>]",
                "list or change native plugins",
            ),
            (self._threads, "threads", "[filter]", "list the threads"),
            (self._binding, "binding", "", "show the thread of this session"),
            (self._bind, "bind", "<thread>", "continue a thread in this session"),
            (self._bind, "resume", "<thread>", "the same as bind"),
            (self._detach, "detach", "", "forget the thread; the next message starts a new one"),
            (self._detach, "unbind", "", "the same as detach"),
            (self._model, "model", "[model|default]", "show or choose the model of this session"),
            (self._fast, "fast", "[on|off|default|status]", "use the priority tier, or do not"),
            (self._permissions, "permissions", "[default|yolo|status]", _YOLO),
            (self._stop, "stop", "", "interrupt the thread, end its commands in the background"),
            (self._steer, "steer", "<text>", "add to the running turn"),
            (self._compact, "compact", "", "start the compaction of the thread"),
            (self._review, "review", "[instructions]", "review uncommitted changes, or as you say"),
            (self._send_feedback, "diagnostics", "[note]", _FEEDBACK),
        )
        self._subcommands = {
            name: _Subcommand(handler=handler, arguments=arguments, description=description)
            for handler, name, arguments, description in rows
        }

    def as_command(self) -> ChatCommand:
        return ChatCommand(
            name="codex",
            description="Control Codex: threads, model, permissions; /codex help lists all",
            handler=self._run,
            arguments="[subcommand]",
            right="owner",
        )

    async def _run(self, command: CommandCall) -> str:
        if refusal := command.service.config.codex.refusal:
            raise CodexError(f"Codex cannot be used: {refusal}")
        name, _, rest = command.arguments.partition(" ")
        subcommand = self._subcommands.get(name.lower() or "status")
        if subcommand is None:
            shown = name[:_MAX_SHOWN_CHARACTERS]
            return f"There is no subcommand {shown!r}.\n{self._list_subcommands()}"
        try:
            return await subcommand.handler(_Call(command=command, arguments=rest.strip()))
        except AppServerError as error:
            if is_unsupported(error):
                raise CodexError(
                    f"this app-server does not support it ({error.method}); use a newer Codex"
                ) from error
            raise

    async def _help(self, _call: _Call) -> str:
        return self._list_subcommands()

    def _list_subcommands(self) -> str:
        usages = {
            f"/codex {name} {it.arguments}".rstrip(): it.description
            for name, it in self._subcommands.items()
        }
        width = max(map(len, usages))
        return "\n".join(f"{usage:{width}}  {text}" for usage, text in usages.items())

    @asynccontextmanager
    async def _client(self, call: _Call) -> AsyncGenerator[AppServerClient]:
        """The app-server of the agent, which is started if it does not run."""
        command = call.command
        config = command.service.config
        try:
            # The process that the turns of the session use: a thread has one writer.
            provider_key = find_route(call.model, config.models).provider_key
        except CodexError:
            provider_key = None
        async with self._harness.servers.use(
            config.codex, command.agent.id, provider_key
        ) as client:
            yield client

    async def _ask(self, call: _Call, method: str, **params: JsonValue) -> JsonObject:
        async with self._client(call) as client:
            answer = await client.request(method, params, abort=call.command.run.abort_signal)
        return answer if isinstance(answer, dict) else {}

    # Facts.

    async def _status(self, call: _Call) -> str:
        async with self._client(call) as client:
            version = ".".join(map(str, client.version))
        lines = [f"Codex: {version}", f"Account: {await self._describe_account(call)}"]
        lines.append(f"Model: {call.model}{_describe_runtime(call)}")
        session = call.command.session
        if session is not None:
            lines.append(f"Thread: {await self._describe_binding(call)}")
            lines.append(f"Fast: {_describe_tier(call)}")
            lines.append(f"Permissions: {_describe_permissions(call)}")
            live = await self._harness.find_live(session.id)
            commands = [] if live is None else await live.list_commands()
            lines += [f"Runs in the background: {_shorten(text)}" for text in commands]
        return "\n".join(lines)

    async def _describe_account(self, call: _Call) -> str:
        async with self._client(call) as client:
            account = await read_account(client)
        return describe_account(account) or "none; the keys of Nacre's providers are used"

    async def _account(self, call: _Call) -> str:
        lines = [f"Account: {await self._describe_account(call)}"]
        try:
            limits = (await self._ask(call, "account/rateLimits/read")).get("rateLimits")
        except AppServerError as error:
            lines.append(f"Rate limits: not known ({error.message})")
            return "\n".join(lines)
        for name in ("primary", "secondary"):
            window = limits.get(name) if isinstance(limits, dict) else None
            if isinstance(window, dict):
                lines.append(f"Rate limit ({name}): {window.get('usedPercent')} % used")
        return "\n".join(lines)

    async def _models(self, call: _Call) -> str:
        found = get_objects(await self._ask(call, "model/list", limit=_MAX_LISTED), "data")
        lines = [
            f"- {get_text(it, 'id')}: {_shorten(get_text(it, 'description'))}"
            + (" (default)" if it.get("isDefault") is True else "")
            for it in found
        ]
        return "\n".join(lines) or "Codex lists no models."

    async def _mcp(self, call: _Call) -> str:
        answer = await self._ask(
            call, "mcpServerStatus/list", limit=_MAX_LISTED, detail="toolsAndAuthOnly"
        )
        lines = [
            f"- {get_text(it, 'name')}: {_count(it, 'tools')} tools, "
            f"login: {get_text(it, 'authStatus')}"
            for it in get_objects(answer, "data")
        ]
        return "\n".join(lines) or "Codex has no MCP servers of its own."

    async def _skills(self, call: _Call) -> str:
        workspace = str(call.command.agent.workspace)
        places = get_objects(await self._ask(call, "skills/list", cwds=[workspace]), "data")
        skills = [it for place in places for it in get_objects(place, "skills")]
        lines = [
            f"- {get_text(it, 'name')}: {_shorten(get_text(it, 'description'))}"
            for it in skills[:_MAX_LISTED]
        ]
        return "\n".join(lines) or "Codex has no skills."

    async def _plugins(self, call: _Call) -> str:
        if not call.command.service.config.codex.has_native_plugins:
            raise CodexError(
                "native plugins are off; set `plugins.entries.codex.config.codexPlugins.enabled`"
            )
        verb, _, wanted = call.arguments.partition(" ")
        listed = await self._list_plugins(call)
        match verb.lower(), wanted.strip():
            case (("" | "list"), ""):
                lines = [f"- {name}: {_describe_plugin(it)}" for name, (_, it) in listed.items()]
                return "\n".join(lines) or "Codex knows no plugins on this machine."
            case ("enable" | "disable") as action, name if name:
                if name not in listed:
                    known = ", ".join(listed) or "none"
                    raise CodexError(f"Codex knows no plugin {name!r}; known: {known}")
                await self._switch_plugin(call, name, *listed[name], is_on=action == "enable")
                return f"The plugin {name} is {action}d, for new threads."
            case _:
                return "Use /codex plugins [list], enable <plugin> or disable <plugin>."

    async def _list_plugins(self, call: _Call) -> dict[str, tuple[str, JsonObject]]:
        """The plugins of this machine by id, with the path of their marketplace. Codex is not asked
        for those of its servers."""
        workspace = str(call.command.agent.workspace)
        answer = await self._ask(call, "plugin/list", cwds=[workspace], marketplaceKinds=["local"])
        return {
            get_text(it, "id"): (get_text(place, "path"), it)
            for place in get_objects(answer, "marketplaces")
            for it in get_objects(place, "plugins")
        }

    async def _switch_plugin(
        self, call: _Call, name: str, marketplace: str, plugin: JsonObject, *, is_on: bool
    ) -> None:
        if is_on and plugin.get("installed") is not True:
            await self._ask(
                call,
                "plugin/install",
                marketplacePath=marketplace,
                pluginName=get_text(plugin, "name"),
            )
        elif plugin.get("enabled") is not is_on:
            path = f"plugins.{encode_json(name).decode()}.enabled"
            await self._ask(
                call, "config/value/write", keyPath=path, value=is_on, mergeStrategy="upsert"
            )

    async def _threads(self, call: _Call) -> str:
        params: dict[str, JsonValue] = {
            "limit": _MAX_LISTED,
            "sortKey": "updated_at",
            "modelProviders": [],
            "sourceKinds": [*_SOURCES],
        }
        if call.arguments:
            params["searchTerm"] = call.arguments
        owners = {it.thread_id: it.session_id for it in await call.command.service.store.threads()}
        lines: list[str] = []
        for it in get_objects(await self._ask(call, "thread/list", **params), "data"):
            thread_id = get_text(it, "id")
            owner = f" [{owners[thread_id]}]" if thread_id in owners else ""
            lines.append(
                f"- {thread_id}{owner}: {_shorten(get_text(it, 'name') or get_text(it, 'preview'))}"
            )
        return "\n".join(lines) or "There are no threads."

    # The thread of the session.

    async def _binding(self, call: _Call) -> str:
        return f"Thread: {await self._describe_binding(call)}"

    async def _describe_binding(self, call: _Call) -> str:
        binding = await self._harness.bindings.find(call.session.id)
        if binding is None:
            return "none yet; the next message in Codex starts one"
        facts = [it for it in (binding.model, binding.cwd) if it]
        return binding.thread_id + (f" ({', '.join(facts)})" if facts else "")

    async def _bind(self, call: _Call) -> str:
        session, wanted = call.session, call.arguments
        if not wanted:
            return f"Thread: {await self._describe_binding(call)}"
        _require_idle(call)
        answer = await self._ask(call, "thread/read", threadId=wanted, includeTurns=False)
        thread = answer.get("thread")
        # Codex accepts several spellings of an id.
        thread_id = get_text(thread, "id") if isinstance(thread, dict) else wanted
        for record in await call.command.service.store.threads(limit=10_000):
            if record.thread_id == thread_id and record.session_id != session.id:
                raise CodexError(
                    f"the thread {thread_id} belongs to the session {record.session_id}; send "
                    "/codex detach there first"
                )
        await self._harness.reset(session.id)
        # Without a fingerprint of tools, it fits each turn.
        binding = ThreadBinding(
            thread_id=thread_id, tools_fingerprint="", relay_generation=make_generation()
        )
        await self._harness.bindings.put(session.id, binding)
        hint = _describe_runtime(call)
        return f"This session continues the thread {thread_id}.{hint and f' Note:{hint}.'}"

    async def _detach(self, call: _Call) -> str:
        _require_idle(call)
        binding = await self._harness.bindings.find(call.session.id)
        if binding is None:
            return "This session has no thread."
        await self._harness.reset(call.session.id)
        return (
            f"This session has left the thread {binding.thread_id}, which Codex keeps. The next "
            "message starts a new one."
        )

    # Settings of the session.

    async def _model(self, call: _Call) -> str:
        session, service, wanted = call.session, call.command.service, call.arguments
        if not wanted:
            return f"Model: {call.model}{_describe_runtime(call)}"
        if wanted.lower() == "default":
            await service.store.change_session(session.id, model="")
            return f"The model is {call.command.agent.model} again, from the next turn on."
        model = wanted if "/" in wanted else f"{call.model.partition('/')[0]}/{wanted}"
        route = find_route(model, service.config.models)
        if not _runs_in_codex(call, model):
            return f"The model stays as it is: {model} does not run in Codex; use /model instead."
        await service.store.change_session(session.id, model=model)
        binding = await self._harness.bindings.find(session.id)
        has_thread = binding is not None and binding.provider in (None, route.provider_key)
        thread = "the thread stays" if has_thread else "it gets a new thread"
        return f"The model is {model}, from the next turn on; {thread}."

    async def _fast(self, call: _Call) -> str:
        match call.arguments.lower():
            case "" | "status":
                return f"Fast: {_describe_tier(call)}"
            case "on":
                tier = "priority"
            case "off":
                tier = _STANDARD_TIER
            case "default":
                tier = ""
            case _:
                return "Use /codex fast on|off|default|status."
        store = call.command.service.store
        changed = call.with_session(await store.change_session(call.session.id, service_tier=tier))
        return f"Fast: {_describe_tier(changed)}, from the next turn on."

    async def _permissions(self, call: _Call) -> str:
        match call.arguments.lower():
            case "" | "status":
                return f"Permissions: {_describe_permissions(call)}"
            case "yolo":
                mode = "yolo"
            case "default":
                mode = ""
            case _:
                return "Use /codex permissions default|yolo|status."
        store = call.command.service.store
        changed = call.with_session(
            await store.change_session(call.session.id, permission_mode=mode)
        )
        return f"Permissions: {_describe_permissions(changed)}, from the next turn on."

    # Turns.

    async def _stop(self, call: _Call) -> str:
        active = call.command.active_run
        live = await self._harness.find_live(call.session.id)
        ended = [] if live is None else await live.list_commands()
        replies: list[str] = []
        if active is not None:
            await active.abort("stopped with /codex stop")
            replies.append(f"Stopped: {active.id}.")
        elif live is not None and live.is_active:
            live.interrupt()
            replies.append("Codex interrupts what the thread does.")
        if live is not None:
            live.end_commands()
        replies += [f"Ended in the background: {_shorten(text)}" for text in ended]
        return "\n".join(replies) or "The thread does nothing."

    async def _steer(self, call: _Call) -> str:
        active = call.command.active_run
        if not call.arguments:
            return "Use /codex steer <text>."
        if active is None:
            return "No turn is running; send it as a message."
        run = await call.command.start(
            TurnRequest(
                message=call.arguments,
                session_id=call.session.id,
                sender=call.command.request.sender,
                channel=call.command.request.channel,
                rights=call.command.request.rights,
                queue_mode="steer",
            )
        )
        if run is active:
            return "Codex gets it in the running turn."
        return f"The running turn cannot take it; it runs afterwards, as {run.id}."

    async def _compact(self, call: _Call) -> str:
        if not _runs_in_codex(call, call.model):
            raise CodexError(f"the model {call.model} does not run in Codex; use /compact")
        run = await call.command.start(
            TurnRequest(
                message=call.command.request.message,
                session_id=call.session.id,
                rights=call.command.request.rights,
                queue_mode="followup",
                action="compact",
            )
        )
        result = await run.wait()
        if result.error:
            raise CodexError(result.error)
        return result.text

    async def _review(self, call: _Call) -> str:
        _require_idle(call)
        binding = await self._harness.bindings.find(call.session.id)
        if binding is None:
            raise CodexError("this session has no Codex thread yet; send a message first")
        target: JsonObject = {"type": "uncommittedChanges"}
        if call.arguments:
            target = {"type": "custom", "instructions": call.arguments}
        config = call.command.service.config
        route = find_thread_route(
            call.model, config.models, key=binding.provider, thread_model=binding.model
        )
        servers, agent = self._harness.servers, call.command.agent
        async with (
            servers.use(config.codex, agent.id, route.provider_key) as client,
            self._harness.guard_thread(call.command, binding) as guard,
        ):
            live = await self._harness.open_thread(
                client, binding, route, stop=call.command.run.abort_signal, guard=guard
            )
            return await _follow_review(client, live, target)

    async def _send_feedback(self, call: _Call) -> str:
        return await self._feedback.handle(call.command, call.arguments)


@dataclass(kw_only=True, slots=True)
class _ReviewListener:
    """Collects the text of a review, and declines what it asks for."""

    text: str = ""
    error: str = ""
    ended: anyio.Event = field(default_factory=anyio.Event)

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        item, turn = params.get("item"), params.get("turn")
        if method == "item/completed" and isinstance(item, dict):
            if item.get("type") == "exitedReviewMode":
                self.text = get_text(item, "review")
        elif method == "turn/completed" and isinstance(turn, dict):
            error = turn.get("error")
            self.error = get_text(error, "message") if isinstance(error, dict) else ""
            self.ended.set()

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        return refuse_request(method)


async def _follow_review(client: AppServerClient, live: LiveThread, target: JsonObject) -> str:
    listener = _ReviewListener()
    live.turn_listener = listener
    try:
        await client.request(
            "review/start", {"threadId": live.id, "delivery": "inline", "target": target}
        )
        live.expect_turn()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_connection, client, listener)
            await listener.ended.wait()
            tasks.cancel_scope.cancel()
    finally:
        live.turn_listener = None
        live.interrupt()
    if listener.error:
        raise CodexError(f"the review failed: {listener.error}")
    return listener.text or "The review has no text."


async def _watch_connection(client: AppServerClient, listener: _ReviewListener) -> None:
    listener.error = str(await client.wait_closed())
    listener.ended.set()


def _require_idle(call: _Call) -> None:
    if call.command.active_run is not None:
        raise CodexError("a turn of this session is running; wait for it, or send /stop")


def _runs_in_codex(call: _Call, model: str) -> bool:
    config = call.command.service.config
    return choose_runtime(model, call.command.agent, config.models, config.codex).id == "codex"


def _describe_plugin(plugin: JsonObject) -> str:
    if plugin.get("installed") is not True:
        return "not installed"
    return "enabled" if plugin.get("enabled") is True else "disabled"


def _describe_runtime(call: _Call) -> str:
    return "" if _runs_in_codex(call, call.model) else " (it does not run in Codex)"


def _describe_tier(call: _Call) -> str:
    chosen = call.session.service_tier
    configured = call.command.service.config.codex.app_server.service_tier
    if not chosen:
        return f"{'on' if configured == 'priority' else 'off'} (configured)"
    return f"{'on' if chosen == 'priority' else 'off'} (chosen)"


def _describe_permissions(call: _Call) -> str:
    server = call.command.service.config.codex.app_server
    if call.session.permission_mode == "yolo":
        return "yolo (chosen): Codex runs everything without asking"
    return f"{server.approval_policy}, {server.sandbox} (configured)"


def _count(members: JsonObject, key: str) -> int:
    value = members.get(key)
    return len(value) if isinstance(value, dict | list) else 0


def _shorten(text: str) -> str:
    first = text.strip().partition("\n")[0]
    cut = len(first) > _MAX_SHOWN_CHARACTERS
    return f"{first[:_MAX_SHOWN_CHARACTERS]}…" if cut else first
