"""OpenTelemetry spans; without a tracer provider, OpenTelemetry is not imported.

The names and attributes of turns, model calls and tool calls follow OpenTelemetry's conventions for
generative AI (`gen_ai.*`). They contain no messages, no tool inputs and no tool results.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nacre.errors import AbortedError, ProviderError
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer, TracerProvider

    from nacre.messages import AssistantMessage, Usage
    from nacre.run_context import RunContext

SpanName = Literal["nacre.cell", "nacre.tool_call", "nacre.suspend", "nacre.resume"]
AttributeValue: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = "Mapping[str, AttributeValue]"

# OpenTelemetry loads the provider with this name if the application sets none.
_PROVIDER_VARIABLE: Final = "OTEL_PYTHON_TRACER_PROVIDER"

# Other names are as in the conventions or in the configuration.
_PROVIDER_NAMES: Final = {"google": "gcp.gemini"}
# Limits names and ids from providers.
_MAX_CHARACTERS: Final = 200

_tracer_of_provider: tuple[TracerProvider, Tracer] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceContext:
    """A position in a trace, from which another task can continue."""

    context: Context


class Span:
    """A span of a trace.

    As a context manager it is the parent of all spans started inside the block, and it ends with
    the block. Otherwise call `end()`. Attributes are ids, sizes and outcomes, never inputs or
    results, or messages that contain them.
    """

    __slots__ = ("_base", "_is_ended", "_is_failed", "_span", "_token")

    def __init__(
        self, span: OpenTelemetrySpan | None = None, *, base: Context | None = None
    ) -> None:
        """`base` is the context in which the span is entered; by default the current one."""
        self._span = span
        self._base = base
        self._is_ended = False
        self._is_failed = False
        self._token: Token[Context] | None = None

    @property
    def is_recording(self) -> bool:
        """Whether attributes are recorded; check it before you compute an expensive one."""
        return self._span is not None and self._span.is_recording()

    @property
    def open_telemetry_span(self) -> OpenTelemetrySpan | None:
        """For adapters that propagate the trace, such as in the headers of a request."""
        return self._span

    def set(self, key: str, value: AttributeValue) -> None:
        if self._span is not None and not self._is_ended:
            self._span.set_attribute(key, value)

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with an error code or an exception type.

        Only the first call has an effect, because it is the one closest to the cause.
        """
        if self._span is not None and not self._is_ended and not self._is_failed:
            from opentelemetry.trace import StatusCode

            self._is_failed = True
            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR, kind)

    def end(self) -> None:
        """End the span; further calls have no effect."""
        if self._span is not None and not self._is_ended:
            self._is_ended = True
            self._span.end()

    def __enter__(self) -> Span:
        if self._span is not None:
            from opentelemetry import context, trace

            self._token = context.attach(trace.set_span_in_context(self._span, self._base))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            # Other exceptions are cancellations or the end of the process.
            self.fail(kind.__name__ if issubclass(kind, Exception) else "aborted")
        if self._token is not None:
            from opentelemetry import context

            context.detach(self._token)
            self._token = None
        self.end()


_NOT_RECORDED: Final = Span()


def span(
    name: SpanName,
    attributes: Attributes | Callable[[], Attributes] | None = None,
    parent: Span | None = None,
) -> Span:
    """Start a span; without `parent`, it is a child of the current span.

    A function that returns the attributes is called only if the span is recorded.
    """
    return start_span(name, attributes, parent=parent)


def start_span(
    name: str,
    attributes: Attributes | Callable[[], Attributes] | None = None,
    *,
    parent: Span | TraceContext | None = None,
    is_request: bool = False,
) -> Span:
    """Start a span with any name; `is_request` is for requests to another system."""
    tracer = _tracer()
    if tracer is None:
        return _NOT_RECORDED
    from opentelemetry.trace import SpanKind

    base = parent.context if isinstance(parent, TraceContext) else _context_of(parent)
    started = tracer.start_span(
        name,
        context=base,
        kind=SpanKind.CLIENT if is_request else SpanKind.INTERNAL,
        attributes=attributes() if callable(attributes) else attributes,
    )
    return Span(started, base=base)


def current_trace() -> TraceContext | None:
    """The caller's position in the trace; None without a tracer provider."""
    if _tracer() is None:
        return None
    from opentelemetry import context

    return TraceContext(context=context.get_current())


def _context_of(parent: Span | None) -> Context | None:
    if parent is None or parent.open_telemetry_span is None:
        return None
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(parent.open_telemetry_span)


@cache
def _is_provider_named() -> bool:
    return _PROVIDER_VARIABLE in os.environ


def _tracer() -> Tracer | None:
    """The tracer of the current provider; None if there is none that records."""
    global _tracer_of_provider
    # An application that sets a provider has imported OpenTelemetry. Importing it takes 30 ms.
    imported = sys.modules.get("opentelemetry.trace")
    if imported is None and not _is_provider_named():
        return None
    # Another thread may be importing it, for the SDK of a model; nobody has set a provider yet, and
    # the event loop must not wait for it.
    if getattr(getattr(imported, "__spec__", None), "_initializing", False):
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if _tracer_of_provider is not None and _tracer_of_provider[0] is provider:
        return _tracer_of_provider[1]
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer = provider.get_tracer("nacre")
    _tracer_of_provider = (provider, tracer)
    return tracer


def turn_span(context: RunContext, *, model: str, parent: TraceContext | None) -> Span:
    """Start the span of a turn; `model` is the first to be called."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "invoke_agent",
        **_model_attributes(model),
        "gen_ai.agent.id": context.agent_id,
        "gen_ai.conversation.id": context.session_id,
        "nacre.run.id": context.run_id,
    }
    return start_span("agent turn", attributes, parent=parent)


def end_turn_span(current: Span, *, state: str, surface: str, steps: int, usage: Usage) -> None:
    current.set("nacre.turn.state", state)
    if surface:
        current.set("nacre.turn.surface", surface)
    current.set("nacre.turn.steps", steps)
    _set_usage(current, usage)
    if state != "completed":
        current.fail(state)
    current.end()


@contextmanager
def chat_span(model: str, *, context: RunContext) -> Generator[Span]:
    """The span of one model request with its retries."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        **_model_attributes(model),
        "gen_ai.conversation.id": context.session_id,
    }
    with start_span(f"chat {_model_name(model)}", attributes, is_request=True) as current:
        try:
            yield current
        except ProviderError as error:
            current.fail(str(error.status) if error.status else type(error).__name__)
            raise


def note_answer(current: Span, answer: AssistantMessage, *, response_model: str) -> None:
    if response_model:
        current.set("gen_ai.response.model", response_model[:_MAX_CHARACTERS])
    current.set("gen_ai.response.finish_reasons", (answer.finish_reason,))
    _set_usage(current, answer.usage)
    if answer.finish_reason == "error":
        current.fail("error")


@contextmanager
def codex_turn_span(model: str, *, context: RunContext) -> Generator[Span]:
    """The span of a turn inside of Codex, with all its model requests."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "invoke_agent",
        **_model_attributes(model),
        "gen_ai.agent.name": "codex",
        "gen_ai.conversation.id": context.session_id,
    }
    with start_span("codex turn", attributes, is_request=True) as current:
        try:
            yield current
        except ProviderError as error:
            current.fail(str(error.status) if error.status else type(error).__name__)
            raise
        except AbortedError:
            current.fail("aborted")
            raise


def note_codex_turn(current: Span, *, thread_id: str, turn_id: str, usage: Usage) -> None:
    for name, value in (("thread", thread_id), ("turn", turn_id)):
        if value:
            current.set(f"codex.{name}.id", value[:_MAX_CHARACTERS])
    _set_usage(current, usage)


def execute_tool_span(
    name: str, *, call_id: str, tool_id: str = "", parent: TraceContext | None = None
) -> Span:
    """Start the span of a tool call; `name` is empty if there is no such tool."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": call_id[:_MAX_CHARACTERS],
        "gen_ai.tool.type": "function",
    }
    if tool_id:
        attributes["nacre.tool.id"] = tool_id
    if not name:
        return start_span("execute_tool", attributes, parent=parent)
    attributes["gen_ai.tool.name"] = name
    return start_span(f"execute_tool {name}", attributes, parent=parent)


def _set_usage(current: Span, usage: Usage) -> None:
    current.set("gen_ai.usage.input_tokens", usage.input_tokens)
    current.set("gen_ai.usage.output_tokens", usage.output_tokens)
    if usage.cached_tokens:
        current.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)


def _model_attributes(model: str) -> Mapping[str, str]:
    """`model` is `<provider>/<model>`."""
    provider = model.partition("/")[0]
    known = _PROVIDER_NAMES.get(provider, provider)
    return {
        "gen_ai.provider.name": known,
        # The name before version 1.37 of the conventions; some tools still use it.
        "gen_ai.system": known,
        "gen_ai.request.model": _model_name(model),
    }


def _model_name(model: str) -> str:
    return model.partition("/")[2]
