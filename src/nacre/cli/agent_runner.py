"""Opens the system for `run` and `chat`, starts turns and shows their events."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.agent import OWNER_RIGHTS, TurnRequest
from nacre.bootstrap import open_system
from nacre.cli.agent_approvals import ApprovalsPrompt
from nacre.cli.agent_view import JsonView, LiveView, QuietView, create_highlighter
from nacre.cli.output import ExitStatus, UsageError, show_sandbox_progress, warn
from nacre.cli.runner import StopSignals, run_async
from nacre.cli.stored_records import session_names, unknown_name_problem
from nacre.cli.system_config import code_mode_command
from nacre.cli.terminal_input import TypedLines, is_interactive
from nacre.config import user_folder
from nacre.errors import ApprovalError, ConfigError, NacreError, SessionError
from nacre.messages import user_message
from nacre.private_files import write_private
from nacre.providers import get_api_key, import_backend
from nacre.telemetry import DEBUG_LOGGER_NAME
from nacre.tools import ApprovalDecision, ApprovalQueue, ApprovalRequest, NearestNames

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence

    from nacre.agent import AgentRun, ReplyMedia, RunEvent
    from nacre.bootstrap import System
    from nacre.cli.agent_screen import Screen
    from nacre.cli.agent_view import RunView
    from nacre.config import ProviderApi, SystemConfig
    from nacre.storage import Store


def run_with_system(
    config: SystemConfig,
    work: Callable[[System, StopSignals], Awaitable[ExitStatus]],
    *,
    screen: Screen,
) -> ExitStatus:
    """Open the system and run the work in it. Raises UsageError."""
    notes = _Notes(screen)
    logger = logging.getLogger("nacre")
    logger.addHandler(notes)
    try:
        with show_sandbox_progress(lambda text: screen.write_note(f"nacre: {text}", "dim")):
            return run_async(lambda: _run_work(config, work, screen))
    finally:
        logger.removeHandler(notes)


async def _run_work(
    config: SystemConfig,
    work: Callable[[System, StopSignals], Awaitable[ExitStatus]],
    screen: Screen,
) -> ExitStatus:
    stops = StopSignals()
    outcome: list[ExitStatus | NacreError | UsageError] = []
    async with stops.handle() as tasks:
        tasks.start_soon(screen.tick)
        with stops.scope:
            outcome.append(await _run_in_system(config, work, stops))
        screen.close()
        stops.restore_terminal()
    return _status_of(outcome[0]) if outcome else stops.status or ExitStatus.INTERRUPTED


async def _run_in_system(
    config: SystemConfig,
    work: Callable[[System, StopSignals], Awaitable[ExitStatus]],
    stops: StopSignals,
) -> ExitStatus | NacreError | UsageError:
    done: list[ExitStatus | NacreError | UsageError] = []
    try:
        async with _load_sdk(config), open_system(config, workers=1) as system:
            try:
                done.append(await work(system, stops))
                # Codex would lose what it has begun: its process ends with this one.
                await system.codex.wait_for_compactions()
            except (NacreError, UsageError) as error:
                # Raised later: the task groups of the system would wrap it.
                done.append(error)
    except (NacreError, ExceptionGroup) as error:
        problem = _problem_in(error)
        if problem is None:
            raise
        done.append(problem)
    return done[-1]


@asynccontextmanager
async def _load_sdk(config: SystemConfig) -> AsyncGenerator[None]:
    """Load what the default model needs in a thread, while the store and the sandbox start."""
    agents = config.agents
    model = agents.agent(agents.default_id).model
    provider = config.models.providers.get(model.partition("/")[0])
    async with anyio.create_task_group() as tasks:
        if provider is not None and provider.api != "demo" and model != _DEMO_MODEL:
            tasks.start_soon(_import_provider, provider.api)
        yield
        tasks.cancel_scope.cancel()


async def _import_provider(api: ProviderApi) -> None:
    # A missing package is reported when a turn uses the model.
    with suppress(ImportError):
        await anyio.to_thread.run_sync(import_backend, api, abandon_on_cancel=True)


def _problem_in(error: BaseException) -> NacreError | None:
    """The single error inside nested exception groups, if it is one of Nacre's."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _problem_in(group.exceptions[0]) if len(group.exceptions) == 1 else None
    return error if isinstance(error, NacreError) else None


def _status_of(outcome: ExitStatus | NacreError | UsageError) -> ExitStatus:
    match outcome:
        case ExitStatus():
            return outcome
        case UsageError():
            raise outcome
        case ConfigError() | SessionError():
            raise UsageError(str(outcome))
        case NacreError():
            warn(str(outcome))
            return ExitStatus.FAILED


class _Notes(logging.Handler):
    """Shows warnings and the output of debug flags on the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._screen.write_note(f"nacre: {self.format(record)}", "warning")
        elif record.name.startswith(DEBUG_LOGGER_NAME):
            self._screen.write_note(f"{record.name}: {self.format(record)}", "dim")


CHANNEL: Final = "terminal"
_DEMO_MODEL: Final = "demo/demo"
_ID_PREFIX: Final = "session_"
_SERVER_SECTIONS: Final = ("mcp.servers.", "mcpServers.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The options of the command; None for the configured value."""

    agent: str | None = None
    model: str | None = None
    session: str | None = None


def resolve_model(
    config: SystemConfig, target: Target, *, missing_secrets: Sequence[ConfigError] = ()
) -> str:
    """The model that answers. Warns of missing secrets.

    Raises UsageError for an unknown agent, and if the model itself lacks its key.
    """
    try:
        agent = config.agents.agent(target.agent or config.agents.default_id)
    except SessionError as error:
        near = NearestNames(config.agents.ids).nearest(target.agent or "", 1)
        raise UsageError(f"{error}{f'; did you mean {near[0]!r}?' if near else ''}") from None
    model = target.model or agent.model
    if missing_secrets:
        _require_key(config, model)
    has_catalog = agent.tools.code_mode.enabled or agent.tools.tool_search.enabled
    for problem in missing_secrets:
        # Without a catalog, each turn lists all servers and says which of them cannot be used.
        if has_catalog or not problem.path.startswith(_SERVER_SECTIONS):
            warn(str(problem))
    return model


def _require_key(config: SystemConfig, model: str) -> None:
    provider = config.models.providers.get(model.partition("/")[0])
    if provider is None or provider.api == "demo":
        return
    try:
        get_api_key(provider)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def warn_of_demo_model(model: str) -> None:
    """Warn that no real model answers."""
    if model == _DEMO_MODEL:
        warn(
            "the built-in demo model answers; for a real model set its provider's key, such as "
            "OPENAI_API_KEY, and choose the model: "
            "`nacre config set agents.defaults.model openai/gpt-6`"
        )


def resume_hint(target: Target, session: str, *, config_file: str | None) -> str:
    """The command that continues the session, with the options of this command."""
    options = {
        "--config": config_file,
        "--agent": target.agent,
        "--model": target.model,
        "--session": session,
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return f"continue with: {shlex.join(['nacre', 'chat', *words])}"


async def request_for(target: Target, system: System) -> TurnRequest:
    """A turn request without its message, in the given session if there is one.

    Raises UsageError for an unknown session id.
    """
    request = TurnRequest(
        agent_id=target.agent or "",
        model=target.model or "",
        channel=CHANNEL,
        rights=OWNER_RIGHTS,
    )
    if not target.session:
        return request
    if await system.store.session(target.session) is not None:
        return replace(request, session_id=target.session)
    if target.session.startswith(_ID_PREFIX):
        await _refuse_unless_key(target.session, target, system)
    return replace(request, session_key=target.session)


async def _refuse_unless_key(session: str, target: Target, system: System) -> None:
    """Refuse an unknown session id, unless it is a key that was created through the API."""
    agents = system.config.agents
    agent = agents.agent(target.agent or agents.default_id)
    if await system.store.session_by_key(agent.id, session) is None:
        names = await session_names(system.store)
        where = f"a key of your own must not start with {_ID_PREFIX}"
        raise unknown_name_problem("session", session, names, where=where)


class RunFollower:
    """Shows runs and asks for approvals, one run at a time."""

    def __init__(
        self,
        *,
        screen: Screen,
        view: RunView,
        prompt: ApprovalsPrompt,
        approvals: ApprovalQueue,
        store: Store,
        stops: StopSignals,
    ) -> None:
        self._screen = screen
        self._view = view
        self._prompt = prompt
        self._approvals = approvals
        self._store = store
        self._stops = stops

    async def follow(
        self,
        run: AgentRun,
        *,
        meanwhile: Callable[[], Coroutine[None, None, None]] | None = None,
        answer_input: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Show the run until it ends. A signal aborts it.

        `meanwhile` runs as a task beside it. `answer_input` answers a question of the run; by
        default the terminal does.
        """
        with self._stops.stop_with(run.request_abort):
            async with anyio.create_task_group() as tasks:
                if meanwhile is not None:
                    tasks.start_soon(meanwhile)
                async for event in run.events.follow():
                    if event.kind == "input.requested" and answer_input is None:
                        await self._ask_for_input(run, event)
                        continue
                    await self._show(run, event)
                    if event.kind == "input.requested" and answer_input is not None:
                        await answer_input()
                tasks.cancel_scope.cancel()
        self._view.end(run)

    async def _ask_for_input(self, run: AgentRun, event: RunEvent) -> None:
        # Before the question is shown: an answer that comes at once counts.
        with self._prompt.take_terminal():
            await self._show(run, event)
            await self._answer_input(run, event)

    async def _answer_input(self, run: AgentRun, event: RunEvent) -> None:
        """Read the answer at the terminal. Without one, the question has no answer."""
        question = run.pending_input
        if question is None or question.id != event.data.get("inputId"):
            return
        typed: list[str | None] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_answered, run, event, tasks.cancel_scope)
            typed.append(await self._prompt.read_input())
            tasks.cancel_scope.cancel()
        if run.pending_input is question:
            if typed and typed[0]:
                run.input_requests.answer(user_message(typed[0]))
            else:
                run.input_requests.withdraw(question.id)

    async def _show(self, run: AgentRun, event: RunEvent) -> None:
        self._view.add(run, event)
        if self._screen.printer.problem is not None:
            run.request_abort("the reader of the output is gone")
        if event.kind == "media.added":
            await self._show_media(run, str(event.data.get("id")))
        if event.kind == "approval.requested":
            # Asked here, so that nothing is written between the question and the answer.
            for request in run.pending_approvals:
                if request.id == event.data.get("approvalId"):
                    await self._ask(request)

    async def _show_media(self, run: AgentRun, media_id: str) -> None:
        item = run.media.get(media_id)
        if item is None:
            return
        try:
            path = item.path or await save_media(item, self._store)
        except (OSError, NacreError) as error:
            self._screen.write_note(f"{item.record.name} cannot be saved: {error}", "warning")
            return
        self._view.add_media(item.record, path)

    async def _ask(self, request: ApprovalRequest) -> None:
        decided: list[ApprovalDecision] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_closed, request, tasks.cancel_scope)
            decided.append(await self._prompt.answer(request))
            tasks.cancel_scope.cancel()
        try:
            if decided:
                self._approvals.answer(request.id, decided[0])
        except ApprovalError as error:
            self._screen.write_note(str(error), "warning")

    async def _cancel_when_closed(self, request: ApprovalRequest, scope: anyio.CancelScope) -> None:
        """Cancel the question when the approval is closed, by an abort or a timeout."""
        while any(pending.id == request.id for pending in self._approvals.pending):
            await self._approvals.wait_for_change()
        scope.cancel()


async def _cancel_when_answered(
    run: AgentRun, requested: RunEvent, scope: anyio.CancelScope
) -> None:
    """Cancel reading the answer when the question is closed, by an abort or a timeout."""
    async for event in run.events.follow(after=requested.sequence):
        if event.data.get("inputId") == requested.data.get("inputId"):
            break
    scope.cancel()


async def save_media(item: ReplyMedia, store: Store) -> str:
    """Write a file that is only in the database to the user's cache; returns its path."""
    data = item.data
    if data is None:
        found = await store.media.find(item.record.id)
        data = found[1] if found else b""
    folder = user_folder("cache", os.environ) / "media" / item.record.id
    path = folder / item.record.name
    await anyio.to_thread.run_sync(write_private, path, data)
    return str(path)


def live_view(screen: Screen, *, config_file: str | None) -> LiveView:
    """A view for a terminal. Reads files, so create it before the event loop runs."""
    return LiveView(
        screen,
        code_mode_command=code_mode_command(config_file or ""),
        colours=create_highlighter() if screen.has_colours else None,
    )


def view_for(screen: Screen, *, is_json: bool, is_quiet: bool, config_file: str | None) -> RunView:
    if is_json:
        return JsonView(screen.printer)
    if is_quiet:
        return QuietView(screen.printer)
    return live_view(screen, config_file=config_file)


def typed_lines() -> TypedLines | None:
    """The lines that the user types; None without a terminal."""
    return TypedLines() if is_interactive() else None


def follower_for(
    system: System, stops: StopSignals, *, screen: Screen, view: RunView, lines: TypedLines | None
) -> RunFollower:
    return RunFollower(
        screen=screen,
        view=view,
        prompt=ApprovalsPrompt(screen, lines, stops),
        approvals=system.approvals,
        store=system.store,
        stops=stops,
    )


def status_of(run: AgentRun, stops: StopSignals) -> ExitStatus:
    """The exit status of a run that has ended."""
    if run.state == "completed":
        return ExitStatus.COMPLETED
    return (stops.status if run.state == "aborted" else None) or ExitStatus.FAILED
