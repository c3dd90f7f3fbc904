"""Spans by OpenTelemetry: the one file that knows it.

A sampled client's request is a span of kind server on the node that it came to, with its parts (queue, append, sync,
replicas, work, peers) beneath it, and one for whatever another node was asked and did for it. They are made when they
are over, of clocks that were read anyway; the exporter has a thread of its own, and drops what it can't send.
"""

from typing import Final

from fencepost.cluster.base.foreign_work import wait_at_most
from fencepost.cluster.base.ports import Clock
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .spans import Attributes

SEND_S_MAX: Final = 2  # of one batch, with all that is tried again
# A stop waits no longer for what is queued: some batches, each with a time of its own.
STOP_S_MAX: Final = 2
SET_NS: Final = 100_000_000  # by so much the wall clock was set, or has drifted
# Answers that are no fault of anybody's: a client looks elsewhere, or asks again.
_WELL: Final = ("none", "no answer", "done")
_HEADER: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def provider_of(node_id: int, ratio: float) -> TracerProvider:
    """Spans go nowhere until a processor is added."""
    who = {"service.name": "fencepost", "service.instance.id": f"node-{node_id}"}
    return TracerProvider(
        resource=Resource.create(who), sampler=ParentBased(TraceIdRatioBased(ratio))
    )


def exported_to(endpoint: str, provider: TracerProvider) -> TracerProvider:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # The status is all that is looked at. Of itself requests reads an answer to its end, if it has one, into memory.
    session = requests.Session()
    session.stream = True
    session.hooks["response"].append(lambda response, **_: response.close())
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_S_MAX, session=session)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class OtelSpans:
    """See `spans.Spans`."""

    def __init__(self, clock: Clock, provider: TracerProvider) -> None:
        self._clock = clock
        self._provider = provider
        self._tracer = provider.get_tracer("fencepost")
        self._wall_ns = self._now_ns()  # of steady time's beginning

    def begin(self, name: str, begin_s: float, attributes: Attributes) -> "OtelSpan | None":
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=self.wall_ns(begin_s),
        )
        return OtelSpan(self, span) if span.is_recording() else None

    def remote(
        self, traceparent: str, name: str, begin_s: float, end_s: float, attributes: Attributes
    ) -> None:
        beneath = _PROPAGATOR.extract({_HEADER: traceparent})
        span = self._tracer.start_span(
            name, context=beneath, attributes=attributes, start_time=self.wall_ns(begin_s)
        )
        span.end(self.wall_ns(end_s))

    def part(self, of: trace.Span, name: str, begin_s: float, end_s: float) -> None:
        beneath = trace.set_span_in_context(of)
        span = self._tracer.start_span(name, context=beneath, start_time=self.wall_ns(begin_s))
        span.end(self.wall_ns(end_s))

    def wall_ns(self, at_s: float) -> int:
        """Steady seconds as OpenTelemetry wants them. The wall clock's milliseconds are too coarse to be asked each time."""
        now_ns = self._now_ns()
        if abs(now_ns - self._wall_ns) > SET_NS:
            self._wall_ns = now_ns
        return self._wall_ns + round(at_s * 1e9)

    def _now_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000 - round(self._clock.steady() * 1e9)

    async def close(self) -> None:
        """What is not sent yet is sent, for a bounded time; of itself OpenTelemetry waits for 30 s."""
        await wait_at_most(STOP_S_MAX, self._provider.shutdown, name="last spans are sent")


class OtelSpan:
    """See `spans.Span`."""

    def __init__(self, spans: OtelSpans, span: trace.Span) -> None:
        self._spans = spans
        self._span = span
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        self.traceparent = carrier[_HEADER]

    def child(self, name: str, begin_s: float, end_s: float) -> None:
        self._spans.part(self._span, name, begin_s, end_s)

    def end(self, end_s: float, outcome: str) -> None:
        self._span.set_attribute("fencepost.outcome", outcome)
        if outcome not in _WELL:
            self._span.set_status(Status(StatusCode.ERROR, outcome))
        self._span.end(self._spans.wall_ns(end_s))
