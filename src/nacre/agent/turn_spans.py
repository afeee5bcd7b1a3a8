"""The spans of a turn, its model calls and the tool calls of the model.

Names and attributes follow OpenTelemetry's conventions for generative AI (`gen_ai.*`). They contain
no messages, no tool inputs and no tool results.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nacre.errors import ProviderError
from nacre.telemetry import start_span

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from nacre.agent.run import RunEnding
    from nacre.messages import Usage
    from nacre.providers import Answered
    from nacre.run_context import RunContext
    from nacre.telemetry import AttributeValue, Span, TraceContext

# Other names are as in the conventions or in the configuration.
_PROVIDER_NAMES: Final = {"google": "gcp.gemini"}
# Limits names and ids from providers.
_MAX_CHARACTERS: Final = 200


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


def end_turn_span(
    current: Span, *, state: RunEnding, surface: str, steps: int, usage: Usage
) -> None:
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


def note_answer(current: Span, answered: Answered) -> None:
    answer = answered.message
    if answered.response_model:
        current.set("gen_ai.response.model", answered.response_model[:_MAX_CHARACTERS])
    current.set("gen_ai.response.finish_reasons", (answer.finish_reason,))
    _set_usage(current, answer.usage)
    if answer.finish_reason == "error":
        current.fail("error")


def execute_tool_span(name: str, *, call_id: str) -> Span:
    """Start the span of a tool call; `name` is empty if there is no such tool."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": call_id[:_MAX_CHARACTERS],
        "gen_ai.tool.type": "function",
    }
    if not name:
        return start_span("execute_tool", attributes)
    return start_span(f"execute_tool {name}", {**attributes, "gen_ai.tool.name": name})


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
