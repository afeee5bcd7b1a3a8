"""Chat commands: messages such as `/status`, which Nacre answers itself, without a model.

A command runs beside the turns of its session, so that it works while one of them runs. Its caller
gets an ordinary run with the reply as its text. The command and its reply are stored as a turn
without messages: no model ever reads them.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio

from nacre.agent.run import RunResult
from nacre.errors import NacreError, StorageError
from nacre.messages import AssistantMessage, TextPart, Usage, UserMessage
from nacre.run_context import RunContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent.run import AgentRun, RunRegistry
    from nacre.agent.turn_context import ServiceContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.config import AgentConfig
    from nacre.messages import Message
    from nacre.storage import SessionRecord, Store

logger = logging.getLogger(__name__)

CallerRight = Literal["approve", "owner"]
"""What the caller of a turn may do beyond talking to agents; an owner may do everything."""
OWNER_RIGHTS: Final[frozenset[CallerRight]] = frozenset(("approve", "owner"))
COMMAND_SURFACE: Final = "command"
"""The surface of a stored turn that is a command."""

# A second slash makes it a path, such as `/etc/hosts`.
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_MIN_SIMILARITY: Final = 0.75
_STORE_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandCall:
    """One use of a command, with everything that it may need."""

    arguments: str
    """The text after the name, without spaces around it."""
    request: TurnRequest
    agent: AgentConfig
    session: SessionRecord | None
    """None if the message starts a conversation, or if the client keeps the history."""
    active_run: AgentRun | None
    """The turn that runs in the session."""
    run: AgentRun
    """The run of the command itself."""
    service: ServiceContext
    start: Callable[[TurnRequest], Awaitable[AgentRun]]
    """Starts a turn, or passes a message to the running one; for commands that send something."""

    @property
    def identity(self) -> RunContext:
        """For approvals that the command asks for."""
        return RunContext(
            agent_id=self.agent.id,
            session_id=self.run.session_id,
            session_key=self.run.session_key,
            run_id=self.run.id,
            sender=self.request.sender,
            channel=self.request.channel,
            is_sandboxed=self.agent.is_sandboxed(self.run.session_key),
        )


CommandHandler: TypeAlias = "Callable[[CommandCall], Awaitable[str]]"
"""Returns the reply. If it raises a NacreError, the run fails with its message."""
ServiceAction = Literal["new", "reset", "compact"]
"""Commands that the service carries out itself, because they change sessions or are turns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatCommand:
    """A command: its name without the slash, its help and its handler."""

    name: str
    description: str
    """One sentence without a full stop."""
    handler: CommandHandler | ServiceAction
    arguments: str = ""
    """The syntax of the arguments, such as `[steer|followup]`."""
    aliases: tuple[str, ...] = ()
    right: CallerRight | None = None
    """What the caller must be allowed to do; None if everybody may use the command."""
    creates_session: bool = False
    """Whether the command, given arguments, creates the session if there is none."""
    is_stored: bool = True
    """Whether the session keeps a record of the command."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.arguments}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """A message that is a command."""

    name: str
    """As it was typed, in lower case."""
    arguments: str
    command: ChatCommand | None
    """None for a name that is a typing error."""
    suggestion: str = ""
    """The name that was probably meant."""


class ChatCommands:
    """The known commands. Harnesses and other modules add theirs."""

    def __init__(self, commands: Iterable[ChatCommand] = ()) -> None:
        self._by_name: dict[str, ChatCommand] = {}
        self._sources: list[Callable[[], Iterable[ChatCommand]]] = []
        for command in commands:
            self.add(command)

    @property
    def all(self) -> tuple[ChatCommand, ...]:
        """Each command once, in the order of adding."""
        return tuple(
            {command.name: command for command in self._collect_by_name().values()}.values()
        )

    def add(self, command: ChatCommand) -> Callable[[], None]:
        """Add a command; call the returned function to remove it. Raises ValueError for an invalid
        name, and for one that is taken."""
        names = (command.name, *command.aliases)
        for name in names:
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} cannot be the name of a command; use a-z, 0-9, _ and -")
            if name in self._by_name:
                raise ValueError(f"there is a command /{name} already")
        self._by_name.update(dict.fromkeys(names, command))

        def remove() -> None:
            for name in names:
                if self._by_name.get(name) is command:
                    del self._by_name[name]

        return remove

    def add_source(self, source: Callable[[], Iterable[ChatCommand]]) -> None:
        """Add commands that change while the service runs, such as those of plugins. Commands that
        were added by themselves have precedence."""
        self._sources.append(source)

    def get(self, name: str) -> ChatCommand | None:
        return self._collect_by_name().get(name.removeprefix("/").lower())

    def find(self, message: UserMessage | None) -> CommandLine | None:
        """Parse a message; None if it is for the model.

        A command begins with `/` and a name, without a space before it, and has no images. A name
        that is almost one of a command is a typing error; any other name is ordinary text.
        """
        if message is None or any(not isinstance(part, TextPart) for part in message.parts):
            return None
        found = _COMMAND.fullmatch(message.text)
        if found is None:
            return None
        name, arguments = found[1].lower(), (found[2] or "").strip()
        known = self._collect_by_name()
        command = known.get(name)
        if command is not None:
            return CommandLine(name=name, arguments=arguments, command=command)
        near = difflib.get_close_matches(name, known, n=1, cutoff=_MIN_SIMILARITY)
        if not near:
            return None
        return CommandLine(name=name, arguments=arguments, command=None, suggestion=near[0])

    def _collect_by_name(self) -> dict[str, ChatCommand]:
        known = dict(self._by_name)
        for source in self._sources:
            for command in source():
                for name in (command.name, *command.aliases):
                    known.setdefault(name, command)
        return known

    def remove_from(self, messages: Sequence[Message]) -> list[Message]:
        """Leave out commands and their replies; for clients that keep the history themselves."""
        kept: list[Message] = []
        is_reply = False
        for message in messages:
            if is_reply and isinstance(message, AssistantMessage) and not message.tool_calls:
                is_reply = False
                continue
            is_reply = isinstance(message, UserMessage) and self.find(message) is not None
            if not is_reply:
                kept.append(message)
        return kept


class CommandRuns:
    """Runs commands, each in a task of its own, beside the turns."""

    def __init__(self, *, store: Store, runs: RunRegistry, tasks: TaskGroup) -> None:
        self._store = store
        self._runs = runs
        self._tasks = tasks
        self._live: dict[str, AgentRun] = {}

    def live(self, session_id: str) -> list[AgentRun]:
        return [run for run in self._live.values() if run.session_id == session_id]

    def start(self, line: CommandLine, call: CommandCall, handler: CommandHandler) -> AgentRun:
        """Start a command; returns its run, which `call` has too."""
        self._runs.add(call.run)
        self._live[call.run.id] = call.run
        self._tasks.start_soon(self._run, line, call, handler)
        return call.run

    def abort_all(self, reason: str) -> None:
        for run in self._live.values():
            run.request_abort(reason)

    async def _run(self, line: CommandLine, call: CommandCall, handler: CommandHandler) -> None:
        run = call.run
        run.begin(
            {
                "runId": run.id,
                "sessionId": run.session_id,
                "agentId": run.agent_id,
                "model": "",
                "command": line.name,
            }
        )
        # What remains if nothing else is set: the whole service was cancelled.
        result = RunResult(error="the command was cut off", finish_reason="aborted")
        try:
            with run.abort_signal.cancelling():
                result = await _call_handler(call, handler)
                await self._record(line, call, result)
            if run.abort_signal.is_aborted and result.finish_reason == "aborted":
                result = replace(result, error=run.abort_signal.reason)
        finally:
            del self._live[run.id]
            match result.finish_reason:
                case "aborted":
                    run.end("aborted", result)
                case "error":
                    run.end("failed", result)
                case _:
                    run.reply(result.text)
                    run.end("completed", result)
            self._runs.note_ended(run)

    async def _record(self, line: CommandLine, call: CommandCall, result: RunResult) -> None:
        """Store the command as a turn without messages. What it did stays done if this fails."""
        command, run = line.command, call.run
        if not run.is_stored or (command is not None and not command.is_stored):
            return
        is_failed = bool(result.error)
        with anyio.move_on_after(_STORE_SECONDS, shield=True):
            try:
                await self._store.begin_turn(
                    run_id=run.id,
                    session_id=run.session_id,
                    prompt=call.request.user_message,
                    model="",
                    surface=COMMAND_SURFACE,
                )
                await self._store.end_turn(
                    run.id,
                    status="failed" if is_failed else "completed",
                    messages=(),
                    usage=Usage(),
                    error=result.error,
                    data={"command": line.name, "reply": result.text},
                )
            except (StorageError, NacreError) as error:
                logger.warning("the command %s of %s is not kept: %s", line.name, run.id, error)


async def _call_handler(call: CommandCall, handler: CommandHandler) -> RunResult:
    try:
        return RunResult(text=await handler(call))
    except NacreError as error:
        return RunResult(error=str(error), finish_reason="error", cause=error)
    except Exception as error:
        # One command must not end the turns of all sessions.
        logger.exception("the command of the run %s failed", call.run.id)
        problem = f"the command failed inside of Nacre ({type(error).__name__}); see the log"
        return RunResult(error=problem, finish_reason="error")
