"""A scene: who reads where a partition begins is slow to receive it, and the file is gone before it has all of it.

What a node sends of its files it does not copy (`file_node.Lent`), and is done with when the socket has taken it: that it is on
its way is known to nobody by the time its file leaves the log. Consumers that read on are at the other end of it.
"""

from typing import Final

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.wire.client import WireClient

from ..checkers.history import Anomaly
from ..workloads.cluster_client import EARLIEST, Damaged, Leader, end_offset, fetch
from .aimed_faults import STREAMS, scene
from .bystander import MACHINE, GivenUp
from .cluster_nodes import CLIENT_PORT, node_name
from .left_behind import Scene

SLOW_S: Final = (0.3, 3.0)
READ_S: Final = 8.0


@scene
async def slow_reader(one: Scene) -> None:
    """Its answer is what was sent, whatever has become of the file since."""
    faults, world = one.faults, one.faults.world
    place, leader_id = _somewhere(one)
    partition = faults.nodes.broker(leader_id).replicas.partitions[place]
    link, env = world.net.link(node_name(leader_id), MACHINE), world.node(MACHINE)
    wire = WireClient(env, node_name(leader_id), CLIENT_PORT, client_id=MACHINE, timeout_s=READ_S)
    leader = Leader(leader_id, partition.leader_epoch, partition.topic_id, wire)
    before = link.latency_s
    try:
        # What comes first has the connection made.
        start = await world.on(env, end_offset(leader, *place, timestamp=EARLIEST))
        if start is None:
            raise GivenUp(f"{place} moves")
        link.latency_s = SLOW_S
        answer = await world.on(env, fetch(leader, place.partition, start, max_wait_ms=100))
        said = answer.error_code.name
        world.trace.event("chaos", "read", place=str(place), at=start, told=said)
    except Damaged as why:
        if not faults.nodes.has_rotted:
            faults.watch.report([Anomaly("damaged", str(place), f"a slow reader: {why}")])
    finally:
        link.latency_s = before
        await world.on(env, wire.close())


def _somewhere(one: Scene) -> tuple[TopicPartition, BrokerId]:
    """A partition in which something is, and who leads it."""
    nodes = one.faults.nodes
    led = [
        (place, node_id)
        for node_id in nodes.ready()
        for place, here in nodes.broker(node_id).replicas.partitions.items()
        if place.topic in STREAMS and here.is_leader
        if here.log.log_start_offset < here.high_watermark
    ]
    if not led:
        raise GivenUp("nobody leads anything that could be read")
    return one.faults.rng.choice(led)
