"""The node itself: its build, its state, its process, its loop."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fencepost.cluster.base.metrics import Declared
from fencepost.cluster.base.ports import Usage

from . import names
from .gathering import Gathering
from .health import Health, State

if TYPE_CHECKING:
    from ..broker import Broker


class OfNode:
    def __init__(self, node: "Broker", health: Health) -> None:
        self._node = node
        self._health = health
        self._version = _version()

    async def __call__(self, gathering: Gathering) -> None:
        node = self._node
        put = gathering.put
        put(names.BUILD, 1, self._version, ".".join(map(str, sys.version_info[:3])))
        rack = node.config.string("broker.rack")
        put(names.NODE, 1, str(node.config.node_id), node.image.cluster_id, rack)
        verdict = await self._health.verdict()
        for state in State:
            put(names.STATE, float(state is verdict.state), state.value)
        put(names.READY, float(verdict.is_ready))
        for was in ("new", "clean", "unclean"):
            put(names.START, float(was == _was(node)), was)
        put(names.START_SECONDS, node.metrics.start_s)
        lag = node.metrics.loop_lag
        put(names.LOOP_LAG, lag.lag_s)
        put(names.CLOCK_JUMPS, node.clock_watch.jumps)
        put(names.SCRAPE, node.metrics.scrape_s)
        put(names.SCRAPE_TURN, node.metrics.turns_s)
        put(names.HEARTBEAT_AGE, node.session.heartbeat_age_s)
        usage = await gathering.wait(node.env.disk.run(node.env.usage))
        for metric, value in _of_process(usage) if usage is not None else ():
            put(metric, value)
        accepted = node.env.net.accepted()
        if accepted is not None:
            put(names.ACCEPTED, accepted.open)
            put(names.ACCEPTED_MAX, accepted.open_max)
            put(names.ACCEPT_PAUSES, accepted.pauses)


def _of_process(usage: Usage) -> Iterator[tuple[Declared, float]]:
    yield names.CPU, usage.cpu_s
    yield names.RESIDENT, usage.resident_bytes
    yield names.VIRTUAL, usage.virtual_bytes
    yield names.OPEN_FDS, usage.open_fds
    yield names.MAX_FDS, usage.max_fds
    yield names.THREADS, usage.threads
    yield names.STARTED, usage.started_s


def _was(node: "Broker") -> str:
    store = node.replicas.store
    if store.is_new:
        return "new"
    return "clean" if store.was_clean else "unclean"


def _version() -> str:
    try:
        return version("fencepost")
    except PackageNotFoundError:
        return "unknown"
