"""One stream of server-sent events for everything that a page watches."""

import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Annotated, Final, Literal

import anyio
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from nacre.agent import AgentRun
from nacre.errors import StorageError
from nacre.gateway.auth import WebSession, caller_session, caller_token
from nacre.gateway.events import (
    EventStreamResponse,
    HubEvent,
    encode_event,
    merge_deltas,
    merge_session_changes,
    run_event,
)
from nacre.gateway.routes.sessions import session_info
from nacre.gateway.routing import BEARER, GatewayState, JsonRoute, State, error_responses
from nacre.gateway.run_events import EVENT_SCHEMA
from nacre.json_types import JsonObject

SessionState = Literal["idle", "queued", "running", "waiting"]

# A page draws about as often, so more frequent writes would only cost time.
_MIN_INTERVAL_SECONDS: Final = 0.02
# How soon a stream ends whose token was rotated, or whose browser was signed out elsewhere.
_CHECK_SECONDS: Final = 10.0
_REPLAY_EVENTS: Final = 500

router = APIRouter(
    prefix="/api/events", tags=["events"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get(
    "",
    summary="Follow everything",
    response_class=StreamingResponse,
    responses={
        **error_responses(),
        200: {
            "description": (
                "Server-sent events: `event` is the kind, `data` is JSON with `kind`, `time`, "
                "`sessionId`, `runId`, `sequence` and `data`. Comments between events keep the "
                "connection alive."
            ),
            "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
        },
    },
)
async def follow_events(
    request: Request,
    state: State,
    session_id: Annotated[
        str,
        Query(
            alias="sessionId",
            description="Also send all events of the runs of this session.",
            max_length=500,
        ),
    ] = "",
    after: Annotated[str, Query(description="Continue after the event with this id.")] = "",
    last_event_id: Annotated[
        str, Header(description="The same, sent by browsers; takes precedence.")
    ] = "",
) -> Response:
    """Follow all sessions and runs as server-sent events.

    You get `session.*`, `run.*`, `approval.*`, `input.*`, `client_call.*`, `config.applied` and
    `server.*` of all sessions, and every event of the runs of one session. The stream starts with
    `stream.started` and the events so far of the active runs of that session. If the events after
    the given id are no longer known, it starts with `stream.reset` instead.
    """
    reader = _Reader(
        state,
        session_id=session_id,
        token=caller_token(request.scope),
        session=caller_session(request.scope),
    )
    return EventStreamResponse(reader.follow(last_event_id or after))


class _Reader:
    def __init__(
        self, state: GatewayState, *, session_id: str, token: str, session: WebSession | None
    ) -> None:
        """`token` is empty if the gateway needs none."""
        self._state = state
        self._hub = state.events
        self._session_id = session_id
        self._token = token
        self._session = session
        self._checked = anyio.current_time()

    async def follow(self, last_id: str) -> AsyncGenerator[bytes]:
        with self._hub.log_events():
            position = self._hub.parse_id(last_id) if last_id else None
            if position is None:
                kind = "stream.reset" if last_id else "stream.started"
                # The runs of other gateways, too.
                await self._state.system.agents.all_runs()
                position = self._hub.last_number
                for chunk in self._start(kind):
                    yield chunk
            while True:
                change = self._hub.change
                events = self._hub.events_after(position)
                if events is None:
                    # The reader was too slow.
                    position = self._hub.last_number
                    for chunk in self._start("stream.reset"):
                        yield chunk
                elif events:
                    position = events[-1].number
                    if chunk := await self._encode(events):
                        yield chunk
                        # Meanwhile events collect, and are sent together.
                        await anyio.sleep(_MIN_INTERVAL_SECONDS)
                elif self._hub.is_closed:
                    yield encode_event({"reason": "the gateway stops"}, kind="stream.closed")
                    return
                else:
                    with anyio.move_on_after(_CHECK_SECONDS):
                        await change.wait()
                if not await self._is_allowed():
                    yield encode_event({"reason": "signed out"}, kind="stream.closed")
                    return

    def _start(self, kind: str) -> Iterator[bytes]:
        """The first event, and the events so far of the active runs of the session."""
        live = [run for run in self._state.system.agents.known_runs() if not run.has_ended]
        events = [
            HubEvent(number=0, kind=kind, time=time.time(), data=self._describe_start(live)),
            *(
                event
                for run in live
                if self._session_id and run.session_id == self._session_id
                for event in _events_so_far(run)
            ),
        ]
        # Only the last one has an id: a reader that breaks off earlier starts again.
        event_id = self._hub.event_id(self._hub.last_number)
        return self._encode_start(events, event_id)

    def _encode_start(self, events: list[HubEvent], event_id: str) -> Iterator[bytes]:
        for start in range(0, len(events), _REPLAY_EVENTS):
            page = merge_deltas(events[start : start + _REPLAY_EVENTS])
            is_last = start + _REPLAY_EVENTS >= len(events)
            yield b"".join(
                encode_event(
                    event.to_json(),
                    kind=event.kind,
                    event_id=event_id if is_last and event is page[-1] else "",
                )
                for event in page
            )

    def _describe_start(self, live: list[AgentRun]) -> JsonObject:
        return {
            "epoch": self._hub.epoch,
            "liveRuns": [
                {
                    "runId": run.id,
                    "sessionId": run.session_id,
                    "agentId": run.agent_id,
                    "state": run.state,
                    "lastSequence": run.events.last_sequence,
                }
                for run in live
            ],
        }

    async def _encode(self, events: list[HubEvent]) -> bytes:
        shown = [
            event for event in events if event.is_light or event.session_id == self._session_id
        ]
        chunks: list[bytes] = []
        for event in merge_deltas(merge_session_changes(shown)):
            if event.kind in ("session.created", "session.updated"):
                chunks.append(await self._encode_session(event))
            else:
                chunks.append(event.encoded or self._hub.encode(event))
        return b"".join(chunks)

    async def _encode_session(self, event: HubEvent) -> bytes:
        """Empty if the session was deleted meanwhile."""
        # One reader reads the session, and the others use its result.
        async with self._hub.session_lock:
            if not event.encoded:
                try:
                    record = await self._state.system.store.session(event.session_id)
                except StorageError:
                    # The data has only the id, so the reader knows that something changed.
                    return self._hub.encode(event)
                if record is None:
                    return b""
                event.data = session_info(record).model_dump(mode="json")
                event.data["state"] = _session_state(self._state, event.session_id)
                event.encoded = self._hub.encode(event)
        return event.encoded

    async def _is_allowed(self) -> bool:
        """Whether the token of this stream is still valid, and its browser signed in."""
        if not self._token or anyio.current_time() - self._checked < _CHECK_SECONDS:
            return True
        self._checked = anyio.current_time()
        if self._session is None:
            return self._state.sign_in.find_credential(self._token) is not None
        try:
            return await self._state.sign_in.is_active(self._session)
        except StorageError:
            return True


def _events_so_far(run: AgentRun) -> Iterator[HubEvent]:
    known = [run_event(run, event) for event in run.events.events]
    dropped = run.events.dropped
    if dropped and known:
        yield replace(known[0], kind="events.dropped", sequence=-1, data={"count": dropped})
    yield from known


def _session_state(state: GatewayState, session_id: str) -> SessionState:
    states = {run.state for run in state.system.agents.known_runs(session_id)}
    for live in ("waiting", "running", "queued"):
        if live in states:
            return live
    return "idle"
