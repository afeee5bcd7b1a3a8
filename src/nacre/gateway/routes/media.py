"""Files that users attach to messages, and files that runs give to their users."""

import base64
import os
import secrets
import time
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote, unquote

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request, Response

from nacre.agent import clean_media_name, detect_media_type, media_url
from nacre.errors import MediaError
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    ResponseModel,
    State,
    error_responses,
)
from nacre.messages import ImagePart, TextPart
from nacre.storage import MediaRecord
from nacre.tools import FileProblem, Workspace, write_file


class MediaInfo(ResponseModel):
    """A file of a reply."""

    id: str
    name: str
    type: str
    """Its media type, by its content."""
    size: int
    """In bytes."""
    created_at: float
    url: str
    """The path of its content."""


def media_info(record: MediaRecord) -> MediaInfo:
    return MediaInfo(
        id=record.id,
        name=record.name,
        type=record.type,
        size=record.size,
        created_at=record.created,
        url=media_url(record.id),
    )


class UploadResponse(ResponseModel):
    """An uploaded file. Send its id with a message within 24 hours."""

    media_id: str
    name: str
    type: str
    """Its media type, by its content."""
    bytes: int


# A page that embeds one of these runs nothing of it. All others are downloaded.
_SHOWN: Final = ("image/", "audio/", "video/")
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_TEXT_BYTES: Final = 128 * 1024
_FOLDER: Final = "uploads"
_FILE_MODE: Final = 0o600
_MAX_NAME_BYTES: Final = 200
_MAX_ENDING_BYTES: Final = 20

router = APIRouter(tags=["media"], route_class=JsonRoute, dependencies=[BEARER])


@router.get(
    "/api/media/{media_id}",
    summary="Get a file of a reply, or an upload",
    response_class=Response,
    responses={
        **error_responses(404),
        200: {
            "description": "The content of the file.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def get_media(media_id: str, state: State) -> Response:
    """Get the content of a file. `Content-Type` is its type by content, from a short list that is
    safe to show; other files are `application/octet-stream`."""
    record, data = await _find_media(media_id, state)
    is_shown = record.type.startswith(_SHOWN)
    charset = "; charset=utf-8" if record.type == "text/plain" else ""
    return Response(
        data,
        headers={
            "content-type": f"{record.type}{charset}",
            "content-disposition": _disposition(record.name, is_shown=is_shown),
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
            # A file never changes, but it can be deleted with its session.
            "cache-control": "private, no-cache",
        },
    )


async def _find_media(media_id: str, state: GatewayState) -> tuple[MediaRecord, bytes]:
    found = await state.system.store.media.find(media_id)
    if found is not None:
        return found
    for run in state.system.agents.runs():
        held = run.media.get(media_id)
        if held is not None and held.data is not None:
            return held.record, held.data
    uploaded = await state.system.store.media.find_upload(media_id)
    if uploaded is not None:
        return uploaded
    raise ApiError(404, f"there is no file {quote_id(media_id)}")


def _disposition(name: str, *, is_shown: bool) -> str:
    """The header of RFC 6266, with the name in UTF-8."""
    kind = "inline" if is_shown else "attachment"
    return f"{kind}; filename*=UTF-8''{quote(name, safe='')}"


@router.post(
    "/api/uploads",
    status_code=201,
    summary="Upload a file",
    responses=error_responses(),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary", "minLength": 1}
                }
            },
        }
    },
)
async def upload(
    request: Request,
    state: State,
    name: Annotated[str, Query(description="The name of the file.", max_length=1000)] = "",
    x_file_name: Annotated[
        str, Header(description="The same, percent-encoded.", max_length=3000)
    ] = "",
) -> UploadResponse:
    """Upload a file for `attachments` of a message. The body is its content. It is deleted after 24
    hours; what messages contain stays. All uploads together may have 256 MiB."""
    data = await request.body()
    if not data:
        raise ApiError(400, "the body is empty; send the content of the file", path="body")
    record = await _describe(data, name or unquote(x_file_name))
    try:
        await state.system.store.media.add_upload(record, data)
    except MediaError as error:
        raise ApiError(413, str(error), code="uploads_full") from None
    return UploadResponse(media_id=record.id, name=record.name, type=record.type, bytes=record.size)


async def _describe(data: bytes, name: str) -> MediaRecord:
    return MediaRecord(
        id=f"upload_{secrets.token_hex(16)}",
        session_id="",
        run_id="",
        name=clean_media_name(name),
        type=await anyio.to_thread.run_sync(detect_media_type, data),
        size=len(data),
        created=time.time(),
    )


async def attachment_parts(
    state: GatewayState, media_ids: tuple[str, ...], *, workspace: Path
) -> tuple[TextPart | ImagePart, ...]:
    """The parts of a message for uploaded files: images, texts, and references to files that are
    put into the workspace."""
    parts: list[TextPart | ImagePart] = []
    for index, media_id in enumerate(media_ids):
        found = await state.system.store.media.find_upload(media_id)
        if found is None:
            raise ApiError(
                404,
                f"there is no upload {quote_id(media_id)}; uploads expire after 24 hours",
                path=f"body.attachments[{index}]",
            )
        record, data = found
        parts.append(await _part(record, data, workspace))
    return tuple(parts)


async def file_part(data: bytes, *, name: str, workspace: Path) -> TextPart | ImagePart:
    """The same for a file that is part of a message."""
    return await _part(await _describe(data, name), data, workspace)


async def _part(record: MediaRecord, data: bytes, workspace: Path) -> TextPart | ImagePart:
    if record.type in _IMAGES:
        encoded = await anyio.to_thread.run_sync(base64.b64encode, data)
        return ImagePart(url=f"data:{record.type};base64,{encoded.decode()}")
    if record.type == "text/plain" and len(data) <= _MAX_TEXT_BYTES:
        return TextPart(text=f"The attached file {record.name}:\n\n{data.decode()}")
    facts = f"{record.name} ({record.type}, {record.size} bytes)"
    try:
        path = await anyio.to_thread.run_sync(_put_into_workspace, record, data, workspace)
    except FileProblem as problem:
        # The model at least knows of it.
        return TextPart(
            text=f"The user attached {facts}. It could not be put into the workspace: {problem}."
        )
    return TextPart(text=f"The user attached {facts}. It is in the workspace: {path}")


def _put_into_workspace(record: MediaRecord, data: bytes, workspace: Path) -> str:
    """Write the file and return its path in the workspace. Blocks. Raises FileProblem."""
    name = f"{record.id[-8:]}-{_shorten(record.name)}"
    # As for a file of the agent, whose commands may replace directories by links at any time.
    location = Workspace(workspace).locate(f"{_FOLDER}/{name}", create_parents=True)
    with location as target:
        write_file(target, data, mode=_FILE_MODE)
        return target.path


def _shorten(name: str) -> str:
    """The name as a file system can store it, with its ending: the limit is in bytes."""
    stem, ending = os.path.splitext(name)
    if len(ending.encode()) > _MAX_ENDING_BYTES:
        stem, ending = name, ""
    kept = stem.encode()[: _MAX_NAME_BYTES - len(ending.encode())]
    return f"{kept.decode(errors='ignore')}{ending}"
