"""In a part of the seeds a consumer reads all partitions in fetch sessions (`workloads/session_reader.py`), and knows all in the end.

It is in them by dice of its own, and where nothing is deleted and nothing expires: a seed without it is the run that it was.
`--workloads sessions` asks for it.

What it has to go on with at the end has no bound, each step has: it asks one node after the other, those without anything new let it
wait, and with little room an answer brings one to eight records, where two producers have written hundreds a second.
"""

import random
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.ids import TopicPartition

from ..workloads.session_reader import SessionReader
from .cluster_nodes import ClusterNodes
from .plan import Plan

SESSIONS: Final = "sessions"
SESSIONS_ODDS: Final = 0.2
FETCHER: Final = "f0"


def has_sessions(plan: Plan, stream: Callable[[str], random.Random]) -> bool:
    return plan.has_scene(SESSIONS, SESSIONS_ODDS, stream(SESSIONS))


def untold(nodes: ClusterNodes, reader: SessionReader) -> list[str]:
    """What its sessions have not told it yet. Nobody writes any more."""

    def end(partition: int) -> int | None:
        leader = nodes.leader(reader.topic, partition)
        if leader is None:
            return None
        here = nodes.broker(leader).replicas.partitions.get(TopicPartition(reader.topic, partition))
        return None if here is None else here.high_watermark

    return reader.untold(end)
