"""How the commands that move things reach a cluster: by the wire, as librdkafka's admin client can't.

Reassignments, elections and log folders are asked for with the project's own small client; what the cluster says
of itself becomes a `ClusterImage`, so that the same sentences and plans serve here and in a node.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.base.real_env import RealEnv
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    Endpoint,
    PartitionState,
    TopicState,
)
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

from .checked import CLIENT_PORT, Failed, address
from .cluster import EXIT_FAILED, EXIT_OK, nobody_answers
from .leading import look_for_leader
from .lost_disks import name_lost_disks

ASK_S: Final = 30.0
ASK_MS: Final = round(ASK_S * 1000)
PAGE: Final = 2000  # partitions a question, as Kafka's own client
# What may be asked again of another node, as it changes nothing.
LOOKS: Final = frozenset(
    {
        ApiKey.describe_cluster,
        ApiKey.describe_log_dirs,
        ApiKey.describe_quorum,
        ApiKey.describe_topic_partitions,
        ApiKey.find_coordinator,
        ApiKey.list_partition_reassignments,
    }
)


class Wire:
    """`with Wire(bootstrap) as wire: wire.ask(ApiKey.…, …)`: any node answers, the next if one does not."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._addresses = [
            address(each, "--bootstrap", CLIENT_PORT) for each in bootstrap.split(",")
        ]
        self.turns = 0  # from one that did not answer to the next
        self._clients: dict[tuple[str, int], WireClient] = {}
        self._runner = asyncio.Runner()
        self._env: RealEnv | None = None
        # Why nobody leads the metadata quorum, once that was looked at: what is told then is old.
        self.nobody_leads: str | None = None
        self.is_looked_at = False

    @property
    def code(self) -> int:
        """How a command ends that shows what the cluster said."""
        return EXIT_OK if self.nobody_leads is None else EXIT_FAILED

    def __enter__(self) -> Self:
        self._env = self._runner.run(_make_env())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        reason: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._env is not None
        self._runner.run(self._env.close())
        self._runner.close()

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        """Failed when nobody answers. An order that may have been heard is not given to another node."""
        why: Trouble | None = None
        for each in list(self._addresses):
            try:
                return self._ask_at(each, key, fields)
            except Trouble as trouble:
                self.turn()
                why = trouble
                if trouble.outcome is Outcome.UNKNOWN and key not in LOOKS:
                    raise Failed(
                        f"{key.name}: {trouble}. It may happen yet; look before trying again."
                    ) from trouble
        raise nobody_answers(self._bootstrap, why)

    def ask_node(self, endpoint: Endpoint, key: ApiKey, **fields: Any) -> Any:
        """Trouble when this one does not answer."""
        return self._ask_at((endpoint.host, endpoint.port), key, fields)

    def turn(self) -> None:
        """Ask another one first from now on."""
        self.turns += 1
        self._addresses.append(self._addresses.pop(0))

    def turn_to(self, host: str, port: int) -> None:
        """Ask that one first from now on."""
        self._addresses = [(host, port), *(e for e in self._addresses if e != (host, port))]

    def sleep(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        assert self._env is not None
        client = self._clients.get(address)
        if client is None:
            client = WireClient(self._env, *address, client_id="fencepost-cli", timeout_s=ASK_S)
            self._clients[address] = client
        return self._runner.run(client.request(key, **fields))


class _Quiet:
    """What goes wrong is said by the command, once."""

    def info(self, event: str, **fields: object) -> None: ...

    debug = warn = error = info


async def _make_env() -> RealEnv:
    return RealEnv(log=_Quiet())


# --- what the cluster says of itself --------------------------------------------------------------


def read_image(wire: Wire, topics: Sequence[str] | None = None) -> ClusterImage:
    """Nodes, topics with their partitions (all, or those named), and what is on the move; `wire.code` for how sure."""
    look_for_leader(wire)
    image = ClusterImage()
    cluster = wire.ask(ApiKey.describe_cluster, include_fenced_brokers=True)
    image.cluster_id = cluster.cluster_id
    for broker in cluster.brokers:
        broker_id = BrokerId(broker.broker_id)
        image.brokers[broker_id] = BrokerState(
            broker_id=broker_id,
            broker_epoch=BrokerEpoch(0),
            incarnation_id=UUID(int=0),
            endpoints=(Endpoint("CLIENT", broker.host, broker.port, "PLAINTEXT"),),
            rack=broker.rack,
            fenced=getattr(broker, "is_fenced", False),
        )
    if topics is not None and not topics:
        return image
    listed = wire.ask(ApiKey.list_partition_reassignments, timeout=ASK_MS, topics=None)
    moving = {
        (topic.name, each.partition_index): each
        for topic in listed.topics
        for each in topic.partitions
    }
    for name, topic_id, partition in _partitions(wire, topics):
        topic = image.topics.setdefault(name, TopicState(name, topic_id, []))
        image.topics_by_id[topic_id] = topic
        topic.partitions.append(
            _partition(partition, moving.get((name, partition.partition_index)))
        )
    name_lost_disks(wire, image)
    return image


def topic_names(wire: Wire) -> list[str]:
    """All that there are now."""
    return sorted({name for name, _, _ in _partitions(wire, None)})


def partition_of(image: ClusterImage, place: TopicPartition) -> PartitionState:
    """Failed where its topic, which the image has, has no such partition."""
    found = image.partition(*place)
    if found is None:
        count = len(image.topics[place.topic].partitions)
        raise Failed(f"{place.topic} has no partition {place.partition}; it has 0 to {count - 1}")
    return found


def check_known(image: ClusterImage, node: int) -> None:
    if node not in image.brokers:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise Failed(
            f"there is no node {node}; there are {known}. One that is new is known as soon as it has started"
        )


def state_of(broker: BrokerState | None, *, is_old: bool = False) -> str:
    """`is_old`: of when somebody led the quorum; since then nobody has been taken off the list."""
    if broker is None:
        return "unknown"
    now = "down" if broker.fenced else "up"
    return f"was {now}" if is_old else now


def _partitions(wire: Wire, topics: Sequence[str] | None) -> Iterator[tuple[str, UUID, Any]]:
    for topic in described_topics(wire, topics):
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            raise Failed(
                f"there is no topic {topic.name}. `fencepost topic list` shows those there are."
            )
        for partition in topic.partitions:
            yield topic.name, topic.topic_id, partition


def described_topics(wire: Wire, topics: Sequence[str] | None) -> Iterator[Any]:
    """As they come, page by page: one may come again, with its next partitions."""
    cursor: Any = None
    while True:
        page = wire.ask(
            ApiKey.describe_topic_partitions,
            topics=[{"name": name} for name in topics or ()],
            response_partition_limit=PAGE,
            cursor=cursor,
        )
        yield from page.topics
        if page.next_cursor is None:
            return
        cursor = {
            "topic_name": page.next_cursor.topic_name,
            "partition_index": page.next_cursor.partition_index,
        }


def _partition(described: Any, moving: Any) -> PartitionState:
    return PartitionState(
        partition=described.partition_index,
        leader=described.leader_id,
        leader_epoch=LeaderEpoch(described.leader_epoch),
        partition_epoch=PartitionEpoch(0),
        replicas=tuple(described.replica_nodes),
        isr=tuple(described.isr_nodes),
        elr=tuple(described.eligible_leader_replicas or ()),
        adding=() if moving is None else tuple(moving.adding_replicas),
        removing=() if moving is None else tuple(moving.removing_replicas),
        offline=tuple(described.offline_replicas),
    )


def read_sizes(wire: Wire, image: ClusterImage) -> dict[tuple[str, int, BrokerId], int]:
    """How many bytes each replica takes. A node that does not answer is left out."""
    return {
        (topic, partition, node): size
        for node, there in sizes_by_node(wire, image).items()
        for (topic, partition), size in there.items()
    }


def sizes_by_node(wire: Wire, image: ClusterImage) -> dict[BrokerId, dict[tuple[str, int], int]]:
    """The same of each node that answers, also of one that has nothing."""
    sizes: dict[BrokerId, dict[tuple[str, int], int]] = {}
    for broker in image.alive_brokers():
        with contextlib.suppress(Trouble):
            reply = wire.ask_node(broker.endpoints[0], ApiKey.describe_log_dirs, topics=None)
            sizes[broker.broker_id] = {
                (topic.name, each.partition_index): each.partition_size
                for folder in reply.results
                # A log that failed: nobody can say what it takes.
                if folder.error_code is ErrorCode.none
                for topic in folder.topics
                for each in topic.partitions
            }
    return sizes
