"""`GET /metrics`: Prometheus' text, or OpenMetrics for who asks for that.

Scrapers that come while one is answered get the same answer: a crowd of them costs no more than one. Nor do those that
come one after the other take more than a share of the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from fencepost.cluster.base.metrics import Declared, Histogram
from fencepost.cluster.base.ports import Env, HttpReply, HttpRequest
from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from .gathering import Gathering, Source, families
from .shared import Shared

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_EOF: Final = b"# EOF\n"
_COMMENTS: Final = (b"# HELP ", b"# TYPE ", b"# UNIT ")


class _Collected:
    """What prometheus-client writes out: one family at a time, so that nobody waits for all of them."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


class Scrape:
    def __init__(
        self,
        env: Env,
        declared: Sequence[Declared],
        sources: Sequence[Source],
        *,
        took: Histogram,
        turns: Histogram,
    ) -> None:
        self._env = env
        self._declared = declared
        self._sources = sources
        self._took = took
        self._turns = turns
        self._shared = {
            form: Shared(env, "scrape", partial(self._write, form)) for form in (TEXT, OPENMETRICS)
        }

    async def reply(self, request: HttpRequest) -> HttpReply:
        form = OPENMETRICS if _wants_openmetrics(request.accept) else TEXT
        return HttpReply(200, await self.text(form), form)

    async def text(self, form: str = TEXT) -> bytes:
        return await self._shared[form].result()

    async def _write(self, form: str) -> bytes:
        steady = self._env.clock.steady
        began = steady()
        gathering = Gathering(self._env.clock, self._turns)
        for source in self._sources:
            await source(gathering)
            await gathering.breathe()
        generate: Callable[..., bytes] = (
            openmetrics.generate_latest if form == OPENMETRICS else exposition.generate_latest
        )
        pieces = []
        for family, is_first in families(self._declared, gathering):
            piece = generate(_Collected(family)).removesuffix(_EOF)
            pieces.append(piece if is_first else _without_comments(piece))
            await gathering.breathe()
        if form == OPENMETRICS:
            pieces.append(_EOF)
        gathering.end()
        self._took.observe(steady() - began)
        return b"".join(pieces)


def _wants_openmetrics(accept: str) -> bool:
    """Prometheus sends it with a version and a weight: the first of the two forms that it names is what it gets."""
    for each in accept.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind == "application/openmetrics-text":
            return True
        if kind in ("text/plain", "text/*", "*/*"):
            return False
    return False


def _without_comments(piece: bytes) -> bytes:
    lines = piece.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(_COMMENTS))
