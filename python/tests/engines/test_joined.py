"""The engine's part of a refit's trace. Telemetry may be there or not; the body always runs, and decides alone."""

import logging
import sys

import pytest

from drydock.engines import joined

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_without_telemetry_the_log_says_it(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with caplog.at_level(logging.INFO, joined.SCOPE), joined.span("engine.apply", PARENT, rank=1):
        pass
    assert "engine.apply took" in caplog.text and PARENT in caplog.text
    with pytest.raises(KeyError, match="mine"), joined.span("engine.apply", ""):
        raise KeyError("mine")


def test_telemetry_that_fails_is_not_the_bodys_matter(monkeypatch):
    def broken(*_):
        raise RuntimeError("no exporter")

    monkeypatch.setattr(joined, "_start", broken)
    ran = []
    with joined.span("engine.stage", PARENT):
        ran.append(1)
    assert ran == [1]


def test_spans_are_children_of_the_refit(monkeypatch):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with joined.span("engine.stage", PARENT, **{"drydock.rank": 1}):
        pass
    with pytest.raises(ValueError, match="inside"), joined.span("engine.apply", PARENT):
        raise ValueError("inside")
    with joined.span("engine.apply", "not a traceparent"):
        pass
    stage, apply, alone = kept.get_finished_spans()
    assert f"{stage.context.trace_id:032x}-{stage.parent.span_id:016x}" == PARENT[3:-3] and stage.attributes["drydock.rank"] == 1
    assert apply.parent.span_id == stage.parent.span_id and apply.events[0].name == "exception"
    assert alone.parent is None
