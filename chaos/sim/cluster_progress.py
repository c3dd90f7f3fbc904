"""How long producers wait while one thing at a time is broken that leaves a majority (`--at-once 1`): it has a bound.
When all is healed, each thing that a run is there for is done once more, and all that is there is read.

INVARIANT  a batch is acknowledged within `SERVED_S` of virtual time, whatever goes on, as long as all faults so far left a majority
           and each struck when all was whole.
PREVENTS   a cluster that loses nothing and serves nobody for as long as something is broken; a gap that is only counted.
           A cluster that refuses for good what a workload is there for: of what is never done nothing is wrong.
PROVED BY  tests/sim/test_cluster_progress.py::test_a_producer_that_waits_for_longer_than_all_timers_ends_the_run,
           tests/sim/test_never_done.py::test_what_is_never_done_ends_the_run,
           tests/sim/test_never_done.py::test_a_long_log_is_read_to_its_end_however_long_that_takes
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from string import digits
from typing import Any, Final

from ..workloads.cluster_client import METADATA_TIMEOUT_S, REQUEST_TIMEOUT_S, ClusterClient
from ..workloads.cluster_offsets import OffsetKeeper
from ..workloads.cluster_stream import StreamProducer, StreamReader
from ..workloads.time_seeker import TimeSeeker
from .cluster_faults import ClusterFaults
from .cluster_nodes import ClusterNodes
from .world import World

SESSION_S: Final = 3.0  # broker.session.timeout.ms, of which the simulator leaves the default
ELECTED_S: Final = 1.5  # a killed controller costs that: tests/sim/test_cluster_scenarios.py
# Then a request of the client's runs into its own time-out, and a question for the leader does.
SERVED_S: Final = SESSION_S + ELECTED_S + REQUEST_TIMEOUT_S + METADATA_TIMEOUT_S
# Of which one at a time leaves two of three copies, and the clients' ways to them.
LEAVES_A_MAJORITY: Final = frozenset(
    {
        "kill",
        "kill-controller",
        "power-one",
        "power-apart",
        "put-back-disk",
        "stop",
        "pause",
        "suspend",
        "cut",
        "isolate",
        "reset",
        "reorder",
        "clock",
        "drift",
        "full-disk",
        "full-for-long",
        "failing-disk",
        "failing-log",
        "change-voters",
    }
)


class Progress:
    """`look` often. It ends the run where a producer has waited for too long."""

    def __init__(
        self, world: World, faults: ClusterFaults, producers: Sequence[StreamProducer]
    ) -> None:
        self._world = world
        self._faults = faults
        self._producers = producers
        self._since_s: dict[str, tuple[int, float]] = {}  # producer -> acknowledged, since when
        self.longest_s = 0.0

    @property
    def is_owed(self) -> bool:
        """Nothing has struck so far but what leaves a majority, one after the other."""
        kinds = {each.name for each in self._faults.struck}
        return self._faults.one_by_one and kinds <= LEAVES_A_MAJORITY

    def look(self) -> None:
        if not self.is_owed:
            return
        now_s = self._world.loop.time()
        for each in self._producers:
            acknowledged, since_s = self._since_s.get(each.name, (each.acknowledged, now_s))
            if each.acknowledged > acknowledged or not each.waiting:
                since_s = now_s
            self._since_s[each.name] = each.acknowledged, since_s
            self.longest_s = max(self.longest_s, now_s - since_s)
            if now_s - since_s > SERVED_S:
                struck = self._faults.struck[-1] if self._faults.struck else "nothing"
                why = f"{each.name} has waited for {now_s - since_s:.1f} s; struck last: {struck}"
                self._world.fail(AssertionError(f"no-progress: {each.key}: {why}"))


async def until_each_goes_on(
    nodes: ClusterNodes,
    faults: ClusterFaults,
    done: Callable[[], Mapping[str, int]],
    *,
    within_s: float,
) -> None:
    """When all is healed. `done`: how often each thing was done that somebody goes on with, by a sentence for who reads of its end."""
    before = done()

    def complaint() -> str:
        waits = faults.mend()
        left = [what for what, times in done().items() if times <= before.get(what, 0)]
        return (waits or f"not once more: {', '.join(left)}") if left else ""

    await nodes.until("after healing", complaint, within_s=within_s)


async def as_long_as_it_goes_on(
    work: Coroutine[Any, Any, None], reader: StreamReader, within_s: float
) -> None:
    """A long log takes long to read. TimeoutError when nothing more of it has come for so long."""
    reading = asyncio.ensure_future(work)
    try:
        before = -1
        while not reading.done():
            if reader.offset == before:
                raise TimeoutError(f"{reader.key}: nothing behind {before} for {within_s:g} s")
            before = reader.offset
            await asyncio.wait([reading], timeout=within_s)
    finally:
        reading.cancel()
    reading.result()


def of_writers(writers: Iterable[Any]) -> dict[str, int]:
    """Somebody of each kind has to go on: that is, of those whose names differ in a number alone."""
    found: dict[str, int] = {}
    for each in writers:
        what = f"a client {each.client.name.rstrip(digits)} is acknowledged"
        found[what] = found.get(what, 0) + each.acknowledged
    return found


def of_consumers(clients: Sequence[Any]) -> dict[str, int]:
    """Those of the cluster campaign that write nothing."""
    found: dict[str, int] = {}
    for each in clients:
        if isinstance(each, OffsetKeeper):
            found[f"{each.client.name} commits a position"] = each.stored
        elif isinstance(each, TimeSeeker):
            found[f"{each.client.name} is told a time's offset"] = len(each.answers)
    return found | of_followers(each.client for each in clients)


def of_followers(clients: Iterable[ClusterClient]) -> dict[str, int]:
    """Where replicas that follow are read from, and there are any."""
    some = list(clients)
    is_asked = any(each.followers_asked for each in some)
    return {"followers are read": sum(each.followers_read for each in some)} if is_asked else {}
