"""Search, rename, fork, export and delete sessions."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from nacre.agent import new_session_id
from nacre.errors import SessionError
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routes.sessions import SessionInfo, session_info, turn_reply
from nacre.gateway.routing import (
    BEARER,
    JsonRoute,
    RequestModel,
    ResponseModel,
    State,
    TextPattern,
    error_responses,
)
from nacre.gateway.run_events import json_lines
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolMessage,
    UserMessage,
)
from nacre.storage import SearchRole, SessionRecord, Store, TurnRecord


class SnippetPartInfo(ResponseModel):
    """A part of the text around a match."""

    text: str
    is_match: bool


class SearchHitInfo(ResponseModel):
    """A message, or the title of a session, with all words of the query."""

    session_id: str
    title: str
    run_id: str
    """Empty for a title."""
    sequence: int
    """The position of the message in its session; -1 for a title."""
    role: SearchRole
    snippet: tuple[SnippetPartInfo, ...]
    time: float


class SearchResponse(ResponseModel):
    """A page of hits, newest first."""

    hits: tuple[SearchHitInfo, ...]
    next_cursor: str | None = None
    """The value of `before` for the next page. Null on the last page."""


class RenameSessionRequest(RequestModel):
    """The new title of a session."""

    title: Annotated[str, Field(max_length=500)]
    """With an empty title, the next message of the session gives it one."""


class ForkSessionRequest(RequestModel):
    """Which turns to copy."""

    run_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """The run of the last turn to copy. Null for all turns that have ended."""


class ChangedSessionResponse(ResponseModel):
    """A session after a change, or a new one."""

    session: SessionInfo


class DeleteSessionResponse(ResponseModel):
    """The session and all that belongs to it was deleted."""

    session_id: str


_MAX_QUERY_CHARACTERS: Final = 2_000
_CURSOR: Final = TextPattern(
    pattern=r"[0-9]{1,12}(\.[0-9]{1,20})?~[0-9]{1,18}", words="the `nextCursor` of a response"
)
_EXPORT_TURNS: Final = 50
_MAX_EXPORTED_TURNS: Final = 1_000_000
_MAX_RESULT_CHARACTERS: Final = 4_000
_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
_LIST_ITEM: Final = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:\s|$)")
_FORK: Final = ForkSessionRequest()

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute, dependencies=[BEARER])


@router.get("/search", summary="Search messages and titles", responses=error_responses())
async def search_sessions(
    state: State,
    query: Annotated[
        str,
        Query(
            alias="q",
            description="Words. A hit has all of them, each at least as the beginning of a word.",
            max_length=_MAX_QUERY_CHARACTERS,
        ),
    ],
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=500)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[
        Annotated[str, _CURSOR] | None,
        Query(description="The `nextCursor` of the previous page."),
    ] = None,
) -> SearchResponse:
    """Search the messages and titles of all sessions, newest first."""
    found = await state.system.store.search(
        query, agent_id=agent_id, limit=limit + 1, before=before
    )
    page = found[:limit]
    return SearchResponse(
        hits=tuple(
            SearchHitInfo(
                session_id=hit.session_id,
                title=hit.title,
                run_id=hit.run_id,
                sequence=hit.sequence,
                role=hit.role,
                snippet=tuple(
                    SnippetPartInfo(text=part.text, is_match=part.is_match) for part in hit.snippet
                ),
                time=hit.time,
            )
            for hit in page
        ),
        next_cursor=page[-1].cursor if len(found) > limit else None,
    )


@router.patch(
    "/sessions/{session_id}", summary="Rename a session", responses=error_responses(404, 415)
)
async def rename_session(
    session_id: str, body: RenameSessionRequest, state: State
) -> ChangedSessionResponse:
    """Change the title of a session."""
    title = " ".join(body.title.split())
    changed = await state.system.store.change_session(session_id, title=title)
    return ChangedSessionResponse(session=session_info(changed))


@router.delete(
    "/sessions/{session_id}", summary="Delete a session", responses=error_responses(404, 409)
)
async def delete_session(
    session_id: str,
    state: State,
    abort: Annotated[bool, Query(description="Abort the runs of the session first.")] = False,
) -> DeleteSessionResponse:
    """Delete a session with its turns, messages, events, approvals and files."""
    try:
        was_deleted = await state.system.agents.delete_session(session_id, aborts_runs=abort)
    except SessionError as error:
        raise _convert_busy(error) from None
    if not was_deleted:
        raise ApiError(404, f"there is no session {quote_id(session_id)}")
    return DeleteSessionResponse(session_id=session_id)


@router.post(
    "/sessions/{session_id}/fork",
    status_code=201,
    summary="Fork a session",
    responses=error_responses(404, 409, 415),
)
async def fork_session(
    session_id: str, state: State, body: ForkSessionRequest = _FORK
) -> ChangedSessionResponse:
    """Copy a session with its turns up to and with one of them. The copy continues on its own."""
    try:
        new = await state.system.store.fork_session(
            session_id, new_id=new_session_id(), last_run_id=body.run_id
        )
    except SessionError as error:
        raise _convert_busy(error) from None
    return ChangedSessionResponse(session=session_info(new))


def _convert_busy(error: SessionError) -> Exception:
    # It does not help to repeat the request at once.
    return ApiError(409, str(error)) if error.code == "busy" else error


@router.get(
    "/sessions/{session_id}/export",
    summary="Export a session",
    response_class=Response,
    responses={
        **error_responses(404),
        200: {
            "description": "The session as a file.",
            "content": {
                "text/markdown": {"schema": {"type": "string"}},
                "application/jsonl": {"schema": {"type": "string"}},
            },
        },
    },
)
async def export_session(
    session_id: str,
    state: State,
    format: Annotated[
        Literal["markdown", "jsonl"],
        Query(description="A text for people, or the trajectory as JSON Lines."),
    ] = "markdown",
) -> Response:
    """Download a session."""
    session = await state.system.store.session(session_id)
    if session is None:
        raise ApiError(404, f"there is no session {quote_id(session_id)}")
    if format == "jsonl":
        lines, ending = json_lines(state.system.store, session_id=session.id), "jsonl"
        kind = "application/jsonl"
    else:
        lines, ending = _markdown(state.system.store, session), "md"
        kind = "text/markdown; charset=utf-8"
    # The id has no characters that would need quotes, unless it came from another program.
    name = "".join(it for it in session.id if it.isascii() and (it.isalnum() or it in "_-"))
    headers = {"content-disposition": f'attachment; filename="{name or "session"}.{ending}"'}
    return StreamingResponse(lines, media_type=kind, headers=headers)


async def _markdown(store: Store, session: SessionRecord) -> AsyncIterator[str]:
    """The session as Markdown, in parts."""
    yield f"# {session.title or session.id}\n\nSession `{session.id}`, agent `{session.agent_id}`\n"
    turns = await store.turns(session.id, _MAX_EXPORTED_TURNS)
    for start in range(0, len(turns), _EXPORT_TURNS):
        page = turns[start : start + _EXPORT_TURNS]
        found = await store.messages_of_turns(session.id, [turn.run_id for turn in page])
        for turn in page:
            messages = [it.message for it in found if it.run_id == turn.run_id]
            yield "".join(_markdown_of_turn(turn, messages))


def _markdown_of_turn(turn: TurnRecord, messages: list[Message]) -> Iterator[str]:
    if not messages and turn.prompt is not None:
        # A chat command, or a turn that was interrupted.
        messages = [turn.prompt]
    for message in messages:
        match message:
            case UserMessage():
                images = sum(isinstance(part, ImagePart) for part in message.parts)
                shown = f"\n\n({images} images)" if images else ""
                yield f"\n## User\n\n{_close_fence(message.text.strip())}{shown}\n"
            case SystemMessage():
                yield f"\n## System\n\n{_close_fence(message.text.strip())}\n"
            case AssistantMessage():
                yield f"\n## Assistant ({message.model or turn.model})\n"
                yield from _markdown_of_answer(message)
            case ToolMessage():
                outcome = "Error" if message.is_error else "Result"
                yield f"\n{outcome} of `{message.name}`:\n\n{_fence(message.content)}"
    if reply := turn_reply(turn):
        yield f"\n## Reply\n\n{_close_fence(reply.strip())}\n"
    if turn.error:
        yield f"\n> **{turn.status}:** {' '.join(turn.error.split())}\n"


def _markdown_of_answer(message: AssistantMessage) -> Iterator[str]:
    for part in message.parts:
        match part:
            case TextPart():
                yield f"\n{_close_fence(part.text.strip())}\n" if part.text.strip() else ""
            case ThinkingPart():
                quoted = part.text.strip().replace("\n", "\n> ")
                yield f"\n> *Thinking:* {quoted}\n" if quoted else ""
            case _:
                yield f"\nCall of `{part.name}`:\n\n{_fence(part.arguments, 'json')}"


def _close_fence(text: str) -> str:
    """Add the end of a code block that the text leaves open: what follows would be part of it."""
    open_fence, has_list = "", False
    for line in text.splitlines():
        if not open_fence and _LIST_ITEM.match(line):
            has_list = True
        if (found := _FENCE.fullmatch(line)) is None:
            continue
        indent, fence, rest = found.groups()
        if open_fence:
            if fence.startswith(open_fence) and not rest.strip():
                open_fence = ""
        elif not (indent and has_list) and not (fence[0] == "`" and "`" in rest):
            # A block in a list ends with the list, and a second backtick is code within a line.
            open_fence = fence
    return f"{text}\n{open_fence}" if open_fence else text


def _fence(text: str, language: str = "") -> str:
    """A code block, whose fence is longer than any in the text."""
    cut = text[:_MAX_RESULT_CHARACTERS]
    if len(text) > len(cut):
        cut += f"\n… ({len(text) - len(cut)} more characters)"
    fence = "```"
    while fence in cut:
        fence += "`"
    return f"{fence}{language}\n{cut}\n{fence}\n"
