"""Counts requests and how long their callers wait for the first byte; logs them at their end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from nacre.gateway.access_log import ACCESS_LOG

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.gateway.metrics import Metrics

logger = logging.getLogger(ACCESS_LOG)

_UNMATCHED: Final = "unmatched"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestMeter:
    """Around everything else, so that what is turned away is counted as well."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            _log_request(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # By the route and not by the path: ids would make a series each.
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        self._metrics.http_requests.labels(_method(scope), route, str(status)).inc()
        self._metrics.http_seconds.labels(route).observe(seconds)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    """At the end of the body, or when nobody reads it any more: a stream takes as long as it
    takes."""
    if logger.isEnabledFor(logging.INFO):
        # As it was sent, so that no line end is in it; and without the query.
        path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        shown = "without an answer" if status is None else str(status)
        logger.info("%s %s %s %.0f ms", _method(scope), path, shown, seconds * 1000)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
