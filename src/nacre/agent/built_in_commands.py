"""The chat commands that every session has: help, state, model, queue mode, stop and approvals."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, Final, get_args

from nacre.agent.chat_commands import ChatCommand
from nacre.config import QueueMode
from nacre.display import format_input
from nacre.errors import ApprovalError, ConfigError
from nacre.tools import Deny

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.chat_commands import (
        CallerRight,
        ChatCommands,
        CommandCall,
        CommandLine,
        CommandRuns,
    )
    from nacre.agent.run import AgentRun
    from nacre.agent.session_queue import SessionQueues
    from nacre.tools import ApprovalInfo, ApprovalRequest

QUEUE_MODES: Final[tuple[QueueMode, ...]] = get_args(QueueMode)
_DEFAULT: Final = "default"
_MAX_LISTED: Final = 20
_MAX_SHOWN_CHARACTERS: Final = 80
_STOPPED: Final = "stopped with /stop"
_ANSWERS: Final[dict[str, ApprovalInfo]] = {
    "once": "allow-once",
    "allow-once": "allow-once",
    "always": "allow-always",
    "allow-always": "allow-always",
    "deny": "deny",
}
_NO_SESSION: Final = (
    "This conversation has no session yet, or your client keeps its history. Name a session to "
    "use {usage}."
)
_RIGHTS: Final[dict[CallerRight, str]] = {
    "approve": "it needs a token with the scope `approve` or `admin`",
    "owner": "it is for the owner of this Nacre, with a token of the scope `admin`",
}


class BuiltInCommands:
    """Handles the built-in commands of one service."""

    def __init__(
        self, *, commands: ChatCommands, queues: SessionQueues, command_runs: CommandRuns
    ) -> None:
        self._commands = commands
        self._queues = queues
        self._command_runs = command_runs

    def as_commands(self) -> list[ChatCommand]:
        return [
            ChatCommand(
                name="help",
                arguments="[command]",
                description="List the commands, or explain one",
                handler=self._help,
            ),
            ChatCommand(
                name="status",
                description="Show the agent, session, model, runtime, running turn and tokens",
                handler=self._status,
            ),
            ChatCommand(
                name="model",
                arguments=f"[provider/model|{_DEFAULT}]",
                description="Show or choose the model of this session",
                handler=self._model,
                creates_session=True,
            ),
            ChatCommand(
                name="new",
                arguments="[message]",
                description="Start a new session with the same settings; the old one stays stored",
                handler="new",
            ),
            ChatCommand(
                name="reset",
                arguments="[message]",
                description="Start a new session with the configured model and queue mode",
                handler="reset",
            ),
            ChatCommand(
                name="compact",
                description="Replace the older messages of this session by a summary now",
                handler="compact",
            ),
            ChatCommand(
                name="queue",
                arguments=f"[{'|'.join(QUEUE_MODES)}|{_DEFAULT}]",
                description="Show or choose how messages are handled while a turn runs",
                handler=self._queue,
                creates_session=True,
            ),
            ChatCommand(
                name="stop",
                description="Abort the running turn and everything that is queued",
                handler=self._stop,
                aliases=("abort",),
            ),
            ChatCommand(
                name="approve",
                arguments="[<id> [once|always|deny [reason]]]",
                description="List the open approvals, show the input of one, or answer it",
                handler=self._approve,
                right="approve",
            ),
        ]

    # Information.

    async def _help(self, call: CommandCall) -> str:
        if call.arguments:
            command = self._commands.get(call.arguments)
            if command is None:
                return f"There is no command {call.arguments[:_MAX_SHOWN_CHARACTERS]!r}."
            lines = [f"{command.usage}: {command.description}."]
            if command.aliases:
                lines.append(f"Also: {', '.join(f'/{name}' for name in command.aliases)}")
            if command.right is not None:
                lines.append(f"Restricted: {_RIGHTS[command.right]}.")
            return "\n".join(lines)
        commands = self._commands.all
        width = max(len(command.usage) for command in commands)
        lines = [f"{command.usage:{width}}  {command.description}" for command in commands]
        return "\n".join(
            [*lines, "To send a message that looks like a command, put a space before it."]
        )

    async def _status(self, call: CommandCall) -> str:
        session, service = call.session, call.service
        lines = [f"Agent: {call.agent.id}", _describe_session(call)]
        lines.append(f"Model: {_describe_model(call)}")
        model = _chosen_model(call) or call.agent.model
        lines.append(f"Runtime: {service.harness.label(model, call.agent, service.config)}")
        queue_mode = session.queue_mode if session is not None else ""
        chosen = "chosen with /queue" if queue_mode else "configured"
        lines.append(f"Queue mode: {queue_mode or service.config.queue.mode} ({chosen})")
        lines.append(f"Running turn: {self._describe_turn(call)}")
        if session is not None:
            usage = await service.store.session_usage(session.id)
            lines.append(
                f"Tokens: {usage.input_tokens:,} in ({usage.cached_tokens:,} cached), "
                f"{usage.output_tokens:,} out"
            )
        pending = self._pending(call)
        lines.append(f"Open approvals: {len(pending) or 'none'}")
        return "\n".join([*lines, *map(_describe_approval, pending)])

    def _describe_turn(self, call: CommandCall) -> str:
        run = call.active_run
        if run is None:
            return "none"
        started = next(
            (event.time for event in run.events.events if event.kind == "run.started"), None
        )
        seconds = "" if started is None else f", for {max(0.0, time.time() - started):.0f} s"
        queued = self._queues.queued_runs(run.session_id)
        waiting = f", {len(queued)} queued after it" if queued else ""
        return f"{run.id} ({run.state}{seconds}){waiting}"

    # Settings of the session.

    async def _model(self, call: CommandCall) -> str:
        session, wanted = call.session, call.arguments
        if not wanted:
            return self._list_models(call)
        if session is None:
            return _NO_SESSION.format(usage="/model")
        if wanted.lower() == _DEFAULT:
            await call.service.store.change_session(session.id, model="")
            return f"The model is {call.agent.model} again, from the next turn on."
        with call.service.providers() as providers:
            try:
                providers.get(wanted)
            except ConfigError as error:
                near = difflib.get_close_matches(wanted, _known_models(call), n=1)
                hint = f" Did you mean {near[0]}?" if near else " /model lists the known ones."
                return f"The model stays as it is: {error}.{hint}"
        await call.service.store.change_session(session.id, model=wanted)
        return f"The model is {wanted}, from the next turn on. /model {_DEFAULT} takes it back."

    def _list_models(self, call: CommandCall) -> str:
        lines = [f"Model: {_describe_model(call)}"]
        if call.agent.fallback_models and not _chosen_model(call):
            lines.append(f"Fallbacks: {', '.join(call.agent.fallback_models)}")
        known = _known_models(call)
        more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
        lines.append(f"Known: {', '.join(known[:_MAX_LISTED])}{more}")
        return "\n".join(lines)

    async def _queue(self, call: CommandCall) -> str:
        session, wanted = call.session, call.arguments.lower()
        configured = call.service.config.queue.mode
        if not wanted:
            chosen = session.queue_mode if session is not None else ""
            return f"Queue mode: {chosen or configured}. Choose with {_usage_of_queue()}."
        if wanted not in (*QUEUE_MODES, _DEFAULT):
            shown = call.arguments[:_MAX_SHOWN_CHARACTERS]
            return f"{shown!r} is not a queue mode; use {_usage_of_queue()}."
        if session is None:
            return _NO_SESSION.format(usage="/queue")
        if wanted == _DEFAULT:
            await call.service.store.change_session(session.id, queue_mode="")
            return f"The queue mode is the configured one again: {configured}."
        await call.service.store.change_session(session.id, queue_mode=wanted)
        return f"The queue mode of this session is {wanted}."

    # Turns and approvals.

    async def _stop(self, call: CommandCall) -> str:
        if call.session is None:
            return "No turn is running."
        commands = [run for run in self._command_runs.live(call.session.id) if run is not call.run]
        for run in commands:
            run.request_abort(_STOPPED)
        stopped = await self._queues.stop(call.session.id, _STOPPED)
        for run in commands:
            await run.wait()
        count = len(commands) + len(stopped)
        if not count:
            return "No turn is running."
        ids = ", ".join(run.id for run in (*stopped, *commands))
        return f"Stopped: {ids}." if count == 1 else f"Stopped {count} runs: {ids}."

    async def _approve(self, call: CommandCall) -> str:
        if not call.arguments:
            pending = call.service.approvals.pending
            if not pending:
                return "No approval is open."
            return "\n".join([*map(_describe_approval, pending), _usage_of_approve()])
        approval_id, _, rest = call.arguments.partition(" ")
        if not rest.strip():
            return _show_approval(call, approval_id)
        word, _, reason = rest.strip().partition(" ")
        answer = _ANSWERS.get(word.lower())
        if answer is None:
            return f"{word[:_MAX_SHOWN_CHARACTERS]!r} is not an answer. {_usage_of_approve()}"
        try:
            # A reason means something to a denied call only.
            call.service.approvals.answer(
                approval_id, Deny(reason.strip()) if answer == "deny" else answer
            )
        except ApprovalError as error:
            open_ids = [request.id for request in call.service.approvals.pending]
            return f"Nothing was answered: {error}. Open: {', '.join(open_ids) or 'none'}."
        return f"Answered {approval_id}: {answer}."

    def _pending(self, call: CommandCall) -> list[ApprovalRequest]:
        session_id = call.session.id if call.session is not None else ""
        pending = call.service.approvals.pending
        return [it for it in pending if session_id and it.context.session_id == session_id]


def explain_mistake(line: CommandLine) -> str:
    """The reply to a name that is almost one of a command."""
    return (
        f"There is no command /{line.name}. Did you mean /{line.suggestion}? "
        "To send it as a message, put a space before it."
    )


def explain_refusal(command: ChatCommand) -> str:
    """The reply to a caller that lacks the right for a command."""
    assert command.right is not None
    return f"You may not use /{command.name}: {_RIGHTS[command.right]}."


def explain_renewal(*, had_session: bool, keeps_settings: bool, stopped: Sequence[AgentRun]) -> str:
    """The reply to `/new` and `/reset`."""
    if not had_session:
        return "Your next message starts a new session."
    settings = "same" if keeps_settings else "configured"
    stop = " The running turn was stopped." if stopped else ""
    return f"This is a new session, with the {settings} model and queue mode.{stop}"


def _chosen_model(call: CommandCall) -> str:
    """The model of the request or the session; empty for the agent's."""
    return call.request.model or (call.session.model if call.session is not None else "")


def _describe_model(call: CommandCall) -> str:
    chosen = _chosen_model(call)
    if not chosen:
        return f"{call.agent.model} (configured)"
    return f"{chosen} (chosen {'by your client' if call.request.model else 'with /model'})"


def _describe_session(call: CommandCall) -> str:
    session = call.session
    if session is None:
        return "Session: none yet"
    key = f", key {session.key}" if session.key else ""
    return f"Session: {session.id}{key} ({session.message_count} messages)"


def _describe_approval(request: ApprovalRequest) -> str:
    reason = request.reason[:_MAX_SHOWN_CHARACTERS]
    return f"- {request.id}: {request.tool_id}" + (f" ({reason})" if reason else "")


def _show_approval(call: CommandCall, approval_id: str) -> str:
    """The approval with its whole input."""
    try:
        request = call.service.approvals.find(approval_id)
    except ApprovalError as error:
        return f"Nothing is shown: {error}."
    return f"{_describe_approval(request)}\n{format_input(request.input)}\n{_usage_of_approve()}"


def _known_models(call: CommandCall) -> list[str]:
    config = call.service.config
    listed = [
        f"{provider.name}/{name}"
        for provider in config.models.providers.values()
        for name in provider.models
    ]
    agents = config.agents.by_id.values()
    used = [model for agent in agents for model in (agent.model, *agent.fallback_models)]
    return list(dict.fromkeys((*listed, *used)))


def _usage_of_queue() -> str:
    return f"/queue {'|'.join(QUEUE_MODES)}|{_DEFAULT}"


def _usage_of_approve() -> str:
    return "/approve <id> shows the input; answer with /approve <id> once|always|deny [reason]."
