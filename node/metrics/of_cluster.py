"""The metadata quorum and the other nodes; and, told by the active controller, the whole cluster."""

import math
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.controller import metrics as of_controller
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.quorum import metrics as names
from fencepost.cluster.quorum.figures import bytes_on_disk, figures_of
from fencepost.cluster.wire import metrics as of_peers

from .gathering import Gathering

if TYPE_CHECKING:
    from ..broker import Broker

PARTITIONS_A_STEP: Final = 100


class OfCluster:
    def __init__(self, node: "Broker") -> None:
        self._node = node

    async def __call__(self, gathering: Gathering) -> None:
        node, put = self._node, gathering.put
        quorum = node.quorum
        figures, counters = figures_of(quorum), quorum.counters
        put(names.LEADER, float(quorum.is_leader))
        put(names.LEADER_KNOWN, float(quorum.leader_id is not None))
        put(names.TERM, figures.term)
        put(names.LEADER_CHANGES, counters.leader_changes)
        put(names.VOTERS, len(quorum.voters))
        put(names.COMMIT, counters.commit_s)
        put(names.SYNC, figures.sync_s)
        put(names.PROPOSALS, figures.waiting)
        put(names.LOG_END, figures.log_end)
        put(names.COMMIT_INDEX, figures.commit_index)
        put(names.LAG, figures.lag)
        for follower, lag in figures.follower_lag.items():
            put(names.FOLLOWER_LAG, lag, str(follower))
        journal, snapshot = await gathering.wait(node.env.disk.run(bytes_on_disk, quorum))
        put(names.JOURNAL, journal)
        put(names.SNAPSHOT, snapshot)
        put(names.SNAPSHOT_FAILURES, figures.snapshot_failures)
        put(names.STALLED, figures.stalled_s)
        put(names.VERSION, node.image.version)
        self._peers(gathering)
        await self._controller(gathering)

    def _peers(self, gathering: Gathering) -> None:
        node, put = self._node, gathering.put
        door = node.peers.door
        known = {*node.quorum.voters, *node.image.brokers} - {node.config.node_id}
        connected = 0 if door is None else len(known.intersection(door.connected()))
        put(of_peers.PEERS, connected, "connected")
        put(of_peers.PEERS, len(known) - connected, "missing")
        put(of_peers.LOST, 0 if door is None else door.counters.connections_lost)
        put(of_peers.SILENCES, 0 if door is None else door.counters.silent_peers)
        put(of_peers.DROPPED, 0 if door is None else door.counters.messages_dropped)
        put(of_peers.REQUESTS, 0 if door is None else door.counters.requests_sent)

        put(of_peers.LATE, 0 if door is None else door.counters.handshakes_late)
        tls = node.config.peers.tls
        dates = {} if tls is None else tls.not_after_s
        for store in ("keystore", "truststore"):
            put(of_peers.NOT_AFTER, dates.get(store, math.inf), store)

    async def _controller(self, gathering: Gathering) -> None:
        node, put = self._node, gathering.put
        counters = node.active_controller.counters
        put(of_controller.ELECTIONS, counters.elections)
        put(of_controller.UNCLEAN, counters.unclean_elections)
        put(of_controller.FENCINGS, counters.fencings)
        is_active = node.quorum.is_leader
        put(of_controller.ACTIVE, float(is_active))
        seen = await _look(node.image, gathering) if is_active else _Seen()
        for state, count in seen.brokers.items():
            put(of_controller.BROKERS, count, state)
        put(of_controller.TOPICS, seen.topics)
        put(of_controller.PARTITIONS, seen.partitions)
        put(of_controller.OFFLINE, seen.offline)
        put(of_controller.UNDER_REPLICATED, seen.under_replicated)
        put(of_controller.NOT_PREFERRED, seen.not_preferred)
        put(of_controller.REASSIGNING, seen.reassigning)


class _Seen:
    def __init__(self) -> None:
        self.brokers = dict.fromkeys(("active", "fenced", "stopping"), 0)
        self.topics = self.partitions = self.offline = 0
        self.under_replicated = self.not_preferred = self.reassigning = 0


async def _look(image: ClusterImage, gathering: Gathering) -> _Seen:
    """In several turns, so that a topic may come or go meanwhile: numbers for people, not for decisions."""
    seen = _Seen()
    for broker in image.brokers.values():
        stopping = "stopping" if broker.in_controlled_shutdown else "active"
        seen.brokers["fenced" if broker.fenced else stopping] += 1
    for topic in list(image.topics.values()):
        seen.topics += 1
        for number, state in enumerate(topic.partitions.copy()):
            seen.partitions += 1
            seen.offline += state.leader == NO_LEADER
            in_sync = sum(each in state.isr for each in state.original_replicas)
            seen.under_replicated += in_sync < len(state.original_replicas)
            seen.not_preferred += state.leader not in (NO_LEADER, state.replicas[0])
            seen.reassigning += state.is_moving
            if number % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
                await gathering.breathe()
        await gathering.breathe()
    return seen
