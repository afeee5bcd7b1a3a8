"""The spans that a test has caused, as a tree."""

from collections.abc import Mapping, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Traces:
    """Spans that have ended."""

    def __init__(self, exporter: InMemorySpanExporter, tracer: trace.Tracer) -> None:
        self._exporter = exporter
        self.tracer = tracer
        """For callers that have spans of their own."""

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Those that began first are first."""
        return sorted(self._exporter.get_finished_spans(), key=lambda each: each.start_time or 0)

    def all_of(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.spans if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.all_of(name)
        return found

    def tree(self, *, below: int | None = None) -> list[str]:
        """A line per span, below its parent, with the id of the tool where it has one."""
        return [line for root in self._children(below) for line in self._lines(root, "")]

    def text(self) -> str:
        """All that leaves the process."""
        return "\n".join(each.to_json() for each in self.spans)

    def _lines(self, span: ReadableSpan, indent: str) -> list[str]:
        tool_id = attributes_of(span).get("nacre.tool.id", "")
        lines = [f"{indent}{span.name} {tool_id}".rstrip()]
        for child in self._children(span_id(span)):
            lines += self._lines(child, f"{indent}  ")
        return lines

    def _children(self, parent_id: int | None) -> list[ReadableSpan]:
        return [each for each in self.spans if parent_id_of(each) == parent_id]


def recording_traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The library lets a provider be set only once per process.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return Traces(exporter, provider.get_tracer("the test"))


def attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def parent_id_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def status_of(span: ReadableSpan) -> tuple[str, str | None]:
    return span.status.status_code.name, span.status.description
