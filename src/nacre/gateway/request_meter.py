"""Counts requests and how long their callers wait for the first byte."""

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

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, sent)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # By the route and not by the path: ids would make a series each.
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.http_requests.labels(method, route, str(status)).inc()
        self._metrics.http_seconds.labels(route).observe(seconds)
        if logger.isEnabledFor(logging.DEBUG):
            # As it was sent, so that no line end is in it; and without the query.
            path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
            logger.debug("%s %s %d %.0f ms", method, path, status, seconds * 1000)
