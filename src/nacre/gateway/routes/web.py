"""Sign-in of browsers: codes, sign-in, sign-out, and the state of the session."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field

import nacre
from nacre.config import TokenScope
from nacre.gateway.auth import (
    SESSION_SECONDS,
    caller_session,
    caller_token,
    cookie_name,
    is_own_origin,
)
from nacre.gateway.errors import ApiError
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.gateway.web import APP_PATH

Secret = Annotated[str, Field(max_length=1000, repr=False)]


class SignInRequest(RequestModel):
    """The code of a link, or a token of the gateway."""

    code: Secret = ""
    token: Secret = ""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["code"], "properties": {"code": {"minLength": 1}}},
                {"required": ["token"], "properties": {"token": {"minLength": 1}}},
            ]
        }
    )


class WebCodeResponse(ResponseModel):
    """A link that signs in a browser once."""

    code: str
    """Empty if the gateway needs no token."""
    url: str
    expires_at: float | None = None


class WebSessionResponse(ResponseModel):
    """Whether the browser is signed in, and what it may do."""

    is_signed_in: bool
    scopes: tuple[TokenScope, ...]
    version: str
    auth_mode: Literal["token", "none"]
    """With `none`, no sign-in is needed."""


_WRONG: Final = (
    "the code or token is wrong, or the code was used or has expired; get a new link with "
    "`nacre link`"
)

open_router = APIRouter(prefix="/api/web", tags=["web"], route_class=JsonRoute)
router = APIRouter(prefix="/api/web", tags=["web"], route_class=JsonRoute, dependencies=[BEARER])


@router.post("/codes", summary="Create a sign-in link", responses=error_responses())
async def create_code(request: Request, state: State) -> WebCodeResponse:
    """Create a link that signs in a browser with the token of this request. It is valid once, for
    ten minutes."""
    base = f"{request.url.scheme}://{request.headers.get('host', '')}{APP_PATH}/"
    if state.system.config.gateway.auth_mode == "none":
        return WebCodeResponse(code="", url=base)
    code, expires = state.sign_in.create_code(caller_token(request.scope))
    return WebCodeResponse(code=code, url=f"{base}#code={code}", expires_at=expires)


@open_router.post(
    "/sign-in",
    status_code=204,
    summary="Sign in a browser",
    responses={
        **error_responses(415, 429),
        204: {"description": "The session is in the cookie of the response."},
    },
)
async def sign_in(body: SignInRequest, request: Request, state: State) -> Response:
    """Exchange a code or a token for a session cookie. Ten wrong attempts of an address within a
    minute block further ones."""
    if bool(body.code) == bool(body.token):
        raise ApiError(400, "send either `code` or `token`", path="body")
    host = request.headers.get("host", "")
    origin = request.headers.get("origin", "")
    if origin and not is_own_origin(origin, "", host=host):
        raise ApiError(403, "only pages of this gateway can sign in")
    address = request.client.host if request.client else ""
    seconds = state.sign_in.blocked_seconds(address)
    if seconds:
        raise ApiError(
            429, "too many wrong codes or tokens; try again later", retry_after_seconds=seconds
        )
    token = _find_token(body, state)
    if token is None:
        state.sign_in.note_guess(address)
        raise ApiError(401, _WRONG)
    response = Response(status_code=204, headers={"cache-control": "no-store"})
    response.set_cookie(
        cookie_name(host),
        state.sign_in.create_cookie(token),
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=origin.startswith("https:") or request.url.scheme == "https",
    )
    return response


def _find_token(body: SignInRequest, state: GatewayState) -> str | None:
    if body.code:
        return state.sign_in.redeem_code(body.code)
    found = state.sign_in.find_credential(body.token)
    return found.token if found else None


@open_router.post(
    "/sign-out",
    status_code=204,
    summary="Sign out a browser",
    responses={**error_responses(), 204: {"description": "The session has ended."}},
)
async def sign_out(request: Request, state: State) -> Response:
    """End the session of the cookie, if there is one."""
    session = caller_session(request.scope)
    if session is not None:
        await state.sign_in.sign_out(session)
    response = Response(status_code=204, headers={"cache-control": "no-store"})
    response.delete_cookie(
        cookie_name(request.headers.get("host", "")), httponly=True, samesite="strict"
    )
    return response


@open_router.get("/session", summary="Get the session of a browser", responses=error_responses())
async def get_session(request: Request, response: Response, state: State) -> WebSessionResponse:
    """Whether the browser is signed in. Needs no token."""
    response.headers["cache-control"] = "no-store"
    mode = state.system.config.gateway.auth_mode
    session = caller_session(request.scope)
    scopes: frozenset[TokenScope] = session.scopes if session else frozenset()
    if mode == "none":
        scopes = frozenset(("admin",))
    return WebSessionResponse(
        is_signed_in=bool(scopes),
        scopes=tuple(sorted(scopes)),
        version=nacre.__version__,
        auth_mode=mode,
    )
