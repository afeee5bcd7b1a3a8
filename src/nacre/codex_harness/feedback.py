"""Codex's feedback about threads: what `/diagnostics` and `/codex diagnostics` send to OpenAI."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from nacre.agent import FeedbackThread, send_feedback
from nacre.codex_harness.threads import ThreadBindings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from nacre.agent import CommandCall
    from nacre.codex_harness.client import AppServerClient
    from nacre.config import CodexConfig
    from nacre.json_types import JsonObject

_UPLOAD_SECONDS: Final = 90.0
_MAX_REASON_CHARACTERS: Final = 2_048
_CONFIRM_SECONDS: Final = 300.0
_COOLDOWN_SECONDS: Final = 60.0
_MAX_PENDING: Final = 100
_NO_THREAD: Final = "This session has no Codex thread, so there is nothing to send."


class ClientSource(Protocol):
    """The app-servers of agents."""

    def use(
        self, codex: CodexConfig, agent_id: str, provider_key: str | None, /
    ) -> AbstractAsyncContextManager[AppServerClient]:
        """The client of an agent's app-server, which is started if it does not run."""
        ...


class CodexFeedback:
    """Sends the feedback of sessions through the app-server that owns their threads."""

    def __init__(self, clients: ClientSource) -> None:
        self._clients = clients

    async def list_threads(self, call: CommandCall, /) -> Sequence[FeedbackThread]:
        if call.session is None:
            return ()
        binding = await ThreadBindings(call.service.store).find(call.session.id)
        if binding is None:
            return ()
        return (
            FeedbackThread(
                thread_id=binding.thread_id,
                session_id=call.session.id,
                channel=call.request.channel,
                resume_command=f"codex resume {binding.thread_id}",
            ),
        )

    async def upload(self, call: CommandCall, thread: FeedbackThread, /, *, note: str) -> None:
        """Ask Codex to send its feedback, with the logs of the thread and its subthreads.

        Raises CodexError; Codex refuses if feedback is disabled in its configuration.
        """
        params: JsonObject = {
            "classification": "bug",
            "threadId": thread.thread_id,
            "includeLogs": True,
            "reason": note[:_MAX_REASON_CHARACTERS] or None,
            "tags": {"source": "nacre", "session": thread.session_id},
        }
        binding = await ThreadBindings(call.service.store).find(thread.session_id)
        provider_key = None if binding is None else binding.provider
        codex = call.service.config.codex
        async with self._clients.use(codex, call.agent.id, provider_key) as client:
            await client.request("feedback/upload", params, timeout_seconds=_UPLOAD_SECONDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pending:
    """An upload that its sender has to confirm."""

    note: str
    scope: tuple[str, ...]
    threads: tuple[FeedbackThread, ...]
    expires: float


class FeedbackCommand:
    """`/codex diagnostics [note]`: sends the feedback of the session's thread, and nothing else.

    The sender confirms it with a token, in the same session.
    """

    def __init__(
        self, feedback: CodexFeedback, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._feedback = feedback
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        self._sent: dict[tuple[str, ...], float] = {}

    async def handle(self, call: CommandCall, arguments: str) -> str:
        """The reply to `/codex diagnostics ARGUMENTS`."""
        self._forget_old()
        verb, _, token = arguments.partition(" ")
        match verb:
            case "confirm":
                return await self._confirm(call, token.strip())
            case "cancel":
                return self._cancel(call, token.strip())
            case _:
                return await self._propose(call, arguments)

    async def _propose(self, call: CommandCall, note: str) -> str:
        threads = await self._feedback.list_threads(call)
        if not threads:
            return _NO_THREAD
        if refusal := self._refuse_repeat(call, threads):
            return refusal
        if len(self._pending) >= _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        token = secrets.token_hex(4)
        self._pending[token] = _Pending(
            note=note,
            scope=_scope(call),
            threads=tuple(threads),
            expires=self._clock() + _CONFIRM_SECONDS,
        )
        return (
            "Codex will send its feedback about the thread of this session, with logs and the "
            "conversation, to OpenAI's servers. Within 5 minutes, reply with "
            f"`/codex diagnostics confirm {token}` to send it, or "
            f"`/codex diagnostics cancel {token}`."
        )

    async def _confirm(self, call: CommandCall, token: str) -> str:
        pending = self._pending.get(token)
        if pending is None or pending.scope != _scope(call):
            return _unknown(token)
        del self._pending[token]
        threads = await self._feedback.list_threads(call)
        if tuple(threads) != pending.threads:
            return "Nothing was sent: the session has another Codex thread now. Start again."
        if refusal := self._refuse_repeat(call, threads):
            return refusal
        for thread in threads:
            self._sent[(*_scope(call), thread.thread_id)] = self._clock()
        return "\n\n".join(await send_feedback(self._feedback, call, threads, note=pending.note))

    def _cancel(self, call: CommandCall, token: str) -> str:
        pending = self._pending.get(token)
        if pending is None or pending.scope != _scope(call):
            return _unknown(token)
        del self._pending[token]
        return "Nothing was sent."

    def _refuse_repeat(self, call: CommandCall, threads: Sequence[FeedbackThread]) -> str:
        for thread in threads:
            if (*_scope(call), thread.thread_id) in self._sent:
                return (
                    "Nothing was sent: the feedback about this session was sent less than "
                    f"{_COOLDOWN_SECONDS:g} seconds ago."
                )
        return ""

    def _forget_old(self) -> None:
        now = self._clock()
        self._pending = {
            token: pending for token, pending in self._pending.items() if pending.expires > now
        }
        self._sent = {
            key: sent for key, sent in self._sent.items() if sent + _COOLDOWN_SECONDS > now
        }


def _scope(call: CommandCall) -> tuple[str, ...]:
    """The sender and the conversation, for which a token is valid."""
    session_id = "" if call.session is None else call.session.id
    return (call.request.sender, call.request.channel, call.agent.id, session_id)


def _unknown(token: str) -> str:
    return (
        f"Nothing was sent: there is no open question {token[:20]!r} from you in this session. "
        "Start again with `/codex diagnostics`."
    )
