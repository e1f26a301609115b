"""Joins the work of a worker to the trace of the refit, where OpenTelemetry is installed and set up; else writes to the log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

SCOPE = "drydock.engines"

log = logging.getLogger(SCOPE)


@contextlib.contextmanager
def span(name: str, traceparent: str, **attributes: Any) -> Iterator[None]:
    """Runs the body as a child span of traceparent. An exception of the body is recorded and goes on.

    Telemetry never decides whether weights are installed: what goes wrong in here is ignored.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(Exception):
            stack.enter_context(_start(name, traceparent, attributes))
        begun = time.perf_counter()
        try:
            yield
        finally:
            log.info("%s took %.1f ms trace=%s %s", name, 1e3 * (time.perf_counter() - begun), traceparent or "none", attributes)


def _start(name: str, traceparent: str, attributes: dict[str, Any]) -> Any:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    return trace.get_tracer(SCOPE).start_as_current_span(name, context=context, attributes=attributes)
