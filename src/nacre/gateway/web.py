"""Serves the web app: its page, its files, and the headers that protect it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from nacre.gateway.errors import ApiError, quote_id

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

APP_PATH: Final = "/app"
ASSETS: Final = Path(__file__).parent / "assets"
"""Made by `hatch_build.py`."""

_INDEX: Final = "index.html"
_MANIFEST: Final = "manifest.json"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_SUFFIXES: Final = {"br": ".br", "gzip": ".gz"}

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types nacre dompurify",
    )
)
_PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FILE_HEADERS: Final = {
    # The names have a hash of the content.
    "cache-control": "public, max-age=31536000, immutable",
    # For an SVG that is opened as a page.
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "vary": "Accept-Encoding",
    "x-content-type-options": "nosniff",
}
_NOT_BUILT: Final = (
    "The web app is not part of this installation.\n"
    "In a source folder, build it with `make install`, then reload this page.\n"
)


def web_routes(assets: Path) -> list[BaseRoute]:
    """The routes of the web app. They need no token: they have no data of users."""
    # By name and encoding. A page loads ten of them at once, and reading one takes longer than
    # the rest of its request. The content of a name never changes.
    cached: dict[tuple[str, str], bytes] = {}

    async def redirect(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{APP_PATH}/{query}", headers={"cache-control": "no-store"})

    async def get_page(request: Request) -> Response:
        page = await anyio.to_thread.run_sync(_read_file, assets / _INDEX)
        if page is None:
            return PlainTextResponse(_NOT_BUILT, 503, headers=_PAGE_HEADERS)
        # Not compressed: it is small, and read again with each load.
        return Response(page, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    async def get_file(request: Request) -> Response:
        name = request.path_params["name"]
        if _NAME.fullmatch(name) is not None and _media_type(name):
            accepted = _accepted_encodings(request.headers.get("accept-encoding", ""))
            for encoding in (*accepted, ""):
                content = cached.get((name, encoding))
                if content is None:
                    path = assets / f"{name}{_SUFFIXES.get(encoding, '')}"
                    content = await anyio.to_thread.run_sync(_read_file, path)
                if content is not None:
                    cached[name, encoding] = content
                    headers = {
                        **_FILE_HEADERS,
                        **({"content-encoding": encoding} if encoding else {}),
                    }
                    return Response(content, media_type=_media_type(name), headers=headers)
        raise ApiError(404, f"the web app has no file {quote_id(name)}; reload the page")

    return [
        Route(APP_PATH, redirect),
        Route(f"{APP_PATH}/assets/{{name:path}}", get_file),
        Route(f"{APP_PATH}/{{path:path}}", get_page),
    ]


def find_missing_files(assets: Path = ASSETS) -> list[str]:
    """The files that the web app lacks; all are there after a build. Blocks."""
    try:
        manifest = json.loads((assets / _MANIFEST).read_bytes())
        names = [_INDEX, *manifest["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return [_MANIFEST]
    return [name for name in names if not (assets / name).is_file()]


def wants_page(accept: str) -> bool:
    """Whether a browser asks for a page, by its `Accept` header."""
    return "text/html" in accept.lower()


def _media_type(name: str) -> str:
    return _TYPES.get(Path(name).suffix, "")


def _read_file(path: Path) -> bytes | None:
    """The content of a file; None if there is none. Blocks."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def _accepted_encodings(header: str) -> list[str]:
    """The encodings that the client accepts and that files may have, the smallest first."""
    weights: dict[str, str] = {}
    for part in header.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = parameters.replace(" ", "")
    refused = re.compile(r"q=0(\.0*)?")
    return [it for it in _SUFFIXES if it in weights and not refused.fullmatch(weights[it])]
