"""The one door to OpenTelemetry: spans of cells and calls, next to nothing where nobody listens."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer, TracerProvider

SpanName = Literal["nacre.cell", "nacre.tool_call", "nacre.suspend", "nacre.resume"]
AttributeValue: TypeAlias = str | bool | int | float

# The library reads a provider's name from here when nobody has set one in code.
_PROVIDER_VARIABLE: Final = "OTEL_PYTHON_TRACER_PROVIDER"

_tracer_of_provider: tuple[TracerProvider, Tracer] | None = None


class Span:
    """Something that takes time. As a context manager, spans that are started inside are its
    children; without, whoever has it ends it. What is set may be ids, sizes and outcomes, never
    inputs, results or messages that quote them."""

    __slots__ = ("_is_ended", "_span", "_token")

    def __init__(self, span: OpenTelemetrySpan | None = None) -> None:
        self._span = span
        self._is_ended = False
        self._token: Token[Context] | None = None

    @property
    def is_recording(self) -> bool:
        """Whether anybody listens; for attributes that cost something to find out."""
        return self._span is not None and self._span.is_recording()

    @property
    def open_telemetry_span(self) -> OpenTelemetrySpan | None:
        """For adapters that pass the trace on, such as in the headers of a request."""
        return self._span

    def set(self, key: str, value: AttributeValue) -> None:
        if self._span is not None:
            self._span.set_attribute(key, value)

    def fail(self, message: str) -> None:
        """Mark as failed; the message is an error's code or type."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR, message)

    def end(self) -> None:
        """End it; again does nothing."""
        if self._span is not None and not self._is_ended:
            self._is_ended = True
            self._span.end()

    def __enter__(self) -> Span:
        if self._span is not None:
            from opentelemetry import context, trace

            self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        if self._token is not None:
            from opentelemetry import context

            context.detach(self._token)
            self._token = None
        self.end()


_NOT_RECORDED: Final = Span()


def span(
    name: SpanName,
    attributes: Mapping[str, AttributeValue] | None = None,
    parent: Span | None = None,
) -> Span:
    """Start a span; its parent is the given one, else the one that the caller is inside of."""
    # Whoever set a provider has imported the library: until then it is not worth 30 ms.
    if "opentelemetry.trace" not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
        return _NOT_RECORDED
    tracer = _tracer()
    if tracer is None:
        return _NOT_RECORDED
    started = tracer.start_span(name, context=_context_of(parent), attributes=attributes)
    return Span(started)


def _context_of(parent: Span | None) -> Context | None:
    if parent is None or parent.open_telemetry_span is None:
        return None
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(parent.open_telemetry_span)


def _tracer() -> Tracer | None:
    """The tracer of the provider that is set now; None when there is none that records."""
    global _tracer_of_provider
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if _tracer_of_provider is not None and _tracer_of_provider[0] is provider:
        return _tracer_of_provider[1]
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer = provider.get_tracer("nacre")
    _tracer_of_provider = (provider, tracer)
    return tracer
