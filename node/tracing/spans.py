"""What is asked of whoever keeps spans of requests. `otel.py` does it with OpenTelemetry; without, nobody does.

Times are steady seconds, as `Env`'s clock gives them: a span of a request is made of clocks that were read anyway.
"""

from collections.abc import Mapping
from typing import Protocol

Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    """One client's request on the node that it came to."""

    @property
    def traceparent(self) -> str:
        """W3C's, which travels to the other nodes."""

    def child(self, name: str, begin_s: float, end_s: float) -> None: ...

    def end(self, end_s: float, outcome: str) -> None: ...


class Spans(Protocol):
    def begin(self, name: str, begin_s: float, attributes: Attributes) -> Span | None:
        """None for a request that is not one of the sample."""

    def remote(
        self, traceparent: str, name: str, begin_s: float, end_s: float, attributes: Attributes
    ) -> None:
        """A span beneath one of another node, or of this one; it is over."""

    async def close(self) -> None: ...
