"""Spans: children, failures, and that nothing happens where nobody listens."""

import sys

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from nacre.telemetry import current_trace, span, start_span


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The library lets a provider be set only once per process.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def finished(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {item.name: item for item in exporter.get_finished_spans()}


def parent_id(item: ReadableSpan) -> int | None:
    return None if item.parent is None else item.parent.span_id


def span_id(item: ReadableSpan) -> int:
    assert item.context is not None
    return item.context.span_id


def test_a_span_has_its_name_and_attributes(exporter: InMemorySpanExporter) -> None:
    with span("nacre.tool_call", {"tool.id": "openclaw:core:read"}) as started:
        assert started.is_recording
        started.set("outcome", "completed")
    item = finished(exporter)["nacre.tool_call"]
    assert dict(item.attributes or {}) == {"tool.id": "openclaw:core:read", "outcome": "completed"}
    assert item.status.is_ok


def test_a_span_inside_another_is_its_child_and_one_after_it_is_not(
    exporter: InMemorySpanExporter,
) -> None:
    with span("nacre.cell"), span("nacre.tool_call"):
        pass
    span("nacre.suspend").end()
    spans = finished(exporter)
    assert parent_id(spans["nacre.tool_call"]) == span_id(spans["nacre.cell"])
    assert parent_id(spans["nacre.suspend"]) is None


async def test_a_parent_can_be_named_in_another_task(exporter: InMemorySpanExporter) -> None:
    cell = span("nacre.cell")

    async def call() -> None:
        span("nacre.tool_call", {}, cell).end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
    cell.end()
    spans = finished(exporter)
    assert parent_id(spans["nacre.tool_call"]) == span_id(spans["nacre.cell"])


def test_an_exception_fails_the_span_by_its_type_and_says_nothing_of_its_message(
    exporter: InMemorySpanExporter,
) -> None:
    with pytest.raises(ValueError, match="hunter2"), span("nacre.tool_call"):
        raise ValueError("hunter2")
    item = finished(exporter)["nacre.tool_call"]
    assert (item.status.is_ok, item.status.description) == (False, "ValueError")
    assert "hunter2" not in item.to_json()


def test_a_span_that_failed_by_word_has_the_word(exporter: InMemorySpanExporter) -> None:
    started = span("nacre.tool_call")
    started.fail("tool_failed")
    started.end()
    assert finished(exporter)["nacre.tool_call"].status.description == "tool_failed"


def test_the_first_word_about_a_failure_stays(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), span("nacre.tool_call") as started:
        started.fail("denied_by_policy")
        raise ValueError("no")
    item = finished(exporter)["nacre.tool_call"]
    assert item.status.description == "denied_by_policy"
    assert (item.attributes or {})["error.type"] == "denied_by_policy"


async def test_a_span_that_is_cancelled_was_aborted(exporter: InMemorySpanExporter) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        with span("nacre.cell"):
            await anyio.sleep_forever()
    assert finished(exporter)["nacre.cell"].status.description == "aborted"


def test_after_its_end_a_span_takes_nothing_more(
    exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="late"), span("nacre.cell") as started:
        started.end()
        started.set("late", 1)
        raise ValueError("late")
    item = finished(exporter)["nacre.cell"]
    assert (item.status.is_ok, dict(item.attributes or {})) == (True, {})
    assert caplog.messages == []


def test_a_request_to_another_system_is_of_that_kind(exporter: InMemorySpanExporter) -> None:
    start_span("chat model", {"reasons": ("stop",)}, is_request=True).end()
    start_span("agent turn").end()
    spans = finished(exporter)
    assert spans["chat model"].kind is trace.SpanKind.CLIENT
    assert (spans["chat model"].attributes or {})["reasons"] == ("stop",)
    assert spans["agent turn"].kind is trace.SpanKind.INTERNAL


# Traces that go on elsewhere.


def test_a_place_in_a_trace_can_be_kept_and_gone_on_from(exporter: InMemorySpanExporter) -> None:
    with span("nacre.cell"):
        kept = current_trace()
    outside = current_trace()
    with span("nacre.resume"):
        with start_span("agent turn", parent=kept), span("nacre.tool_call"):
            pass
        start_span("another turn", parent=outside).end()
    spans = finished(exporter)
    assert parent_id(spans["agent turn"]) == span_id(spans["nacre.cell"])
    assert parent_id(spans["nacre.tool_call"]) == span_id(spans["agent turn"])
    # Though it was started inside of another.
    assert parent_id(spans["another turn"]) is None


def test_a_span_ends_once(exporter: InMemorySpanExporter) -> None:
    started = span("nacre.cell")
    with started:
        started.end()
    started.end()
    assert len(exporter.get_finished_spans()) == 1
    assert not started.is_recording


def test_the_children_of_a_span_that_is_not_sampled_are_not_sampled(
    monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter
) -> None:
    unsampled = TracerProvider(sampler=ALWAYS_OFF)
    sampled = trace.get_tracer_provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: unsampled)
    cell = span("nacre.cell")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: sampled)
    span("nacre.tool_call", {}, cell).end()
    assert not cell.is_recording
    assert exporter.get_finished_spans() == ()


def test_without_a_provider_nothing_is_recorded() -> None:
    with span("nacre.cell", {"a": 1}) as started:
        started.set("b", 2)
        started.fail("no")
    assert not started.is_recording
    assert started.open_telemetry_span is None
    assert current_trace() is None


def test_the_library_is_not_imported_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.delenv("OTEL_PYTHON_TRACER_PROVIDER", raising=False)
    with span("nacre.cell"):
        assert current_trace() is None
    assert "opentelemetry.trace" not in sys.modules


def test_an_import_in_another_thread_is_not_waited_for(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trace.__spec__, "_initializing", True, raising=False)
        assert current_trace() is None
    assert current_trace() is not None


def test_attributes_are_made_only_for_a_span_that_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.telemetry.spans._tracer", lambda: None)
    made: list[str] = []

    def attributes() -> dict[str, str]:
        made.append("attributes")
        return {}

    with span("nacre.cell", attributes):
        assert made == []
