"""Media of replies: the files that runs gave to their users. Uploads are found here, too."""

from typing import Final
from urllib.parse import quote

from fastapi import APIRouter, Response

from nacre.agent import media_url
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    ResponseModel,
    State,
    error_responses,
)
from nacre.storage import MediaRecord


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


# A page that embeds one of these runs nothing of it. All others are downloaded.
_SHOWN: Final = ("image/", "audio/", "video/")

router = APIRouter(
    prefix="/api/media", tags=["media"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get(
    "/{media_id}",
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
    found = await state.system.store.media(media_id)
    if found is not None:
        return found
    for run in state.system.agents.runs():
        held = run.media.get(media_id)
        if held is not None and held.data is not None:
            return held.record, held.data
    uploaded = await state.system.store.upload(media_id)
    if uploaded is not None:
        return uploaded
    raise ApiError(404, f"there is no file {quote_id(media_id)}")


def _disposition(name: str, *, is_shown: bool) -> str:
    """The header of RFC 6266, with the name in UTF-8."""
    kind = "inline" if is_shown else "attachment"
    return f"{kind}; filename*=UTF-8''{quote(name, safe='')}"
