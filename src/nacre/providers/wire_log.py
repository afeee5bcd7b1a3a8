"""What the debug switches ask for, of requests to models and of what comes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.providers.sse_watch import SseWatch
from nacre.providers.wire import UnreadableToolsError, sent_payload
from nacre.telemetry.debug_flags import debug_log

if TYPE_CHECKING:
    from nacre.providers.provider_secrets import ProviderSecrets
    from nacre.telemetry.debug_flags import DebugFlags, PayloadLog

_PEEKED_EVENTS: Final = 5
_MAX_PEEK_CHARACTERS: Final = 2_000


class WireLog:
    """The lines of one provider; writes none whose switch is off."""

    def __init__(self, flags: DebugFlags, secrets: ProviderSecrets) -> None:
        self.flags = flags
        self.secrets = secrets

    def request(self, *, method: str, url: str, body: bytes, attempt: int) -> RequestLog:
        """Called just before the request is sent."""
        address = self.secrets.url(url)
        if self.flags.model_transport:
            debug_log("model_transport").info(
                "%s %s: attempt %d, %d bytes", method, address, attempt, len(body)
            )
        if self.flags.model_payload is not None:
            debug_log("model_payload").info(
                "%s: %s", address, self._payload(body, self.flags.model_payload)
            )
        return RequestLog(self, f"{method} {address}")

    def _payload(self, body: bytes, how: PayloadLog) -> str:
        try:
            if how == "tools":
                payload = sent_payload(body)
                names = ", ".join(payload.tool_names) or "none"
                return self.secrets.text(f"tools: {names} ({payload.tool_bytes} bytes)")
            return encode_json(self.secrets.value(decode_json(body))).decode()
        except (NotJsonError, UnreadableToolsError) as error:
            return self.secrets.text(f"cannot be shown: {error}")


class RequestLog:
    """What became of one request."""

    def __init__(self, log: WireLog, title: str) -> None:
        self._log = log
        self._title = title
        self._began = time.monotonic()
        self._received_bytes = 0
        self._event_count = 0
        self._watch = SseWatch()

    @property
    def wants_content(self) -> bool:
        """Whether what is received has to be told."""
        return self._log.flags.model_transport or self._log.flags.sse is not None

    def answered(self, status: int) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: status %d after %.0f ms", self._title, status, self._milliseconds()
            )

    def received(self, chunk: bytes) -> None:
        self._received_bytes += len(chunk)
        if self._log.flags.sse is None:
            return
        for event in self._watch.feed(chunk):
            self._event_count += 1
            kind = self._log.secrets.text(event.kind, max_characters=80)
            if self._log.flags.sse == "events":
                debug_log("sse").info("%d: %s, %d bytes", self._event_count, kind, event.size_bytes)
            elif self._event_count <= _PEEKED_EVENTS:
                shown = encode_json(self._log.secrets.value(event.data)).decode()
                capped = shown[:_MAX_PEEK_CHARACTERS]
                debug_log("sse").info("%d: %s: %s", self._event_count, kind, capped)

    def ended(self) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: ended after %.0f ms, %d bytes received",
                self._title,
                self._milliseconds(),
                self._received_bytes,
            )

    def _milliseconds(self) -> float:
        return (time.monotonic() - self._began) * 1000
