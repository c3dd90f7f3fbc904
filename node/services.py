"""What a handler may reach: the parts of one running node, wired together in `broker.py`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.controller.service import Executes
from fencepost.cluster.metadata.image import ClusterImage, Endpoint, PartitionState
from fencepost.cluster.quorum.view import QuorumView
from fencepost.replication.fetch_sessions import FetchSessions
from fencepost.replication.manager import ReplicaManager
from fencepost.txn.groups.service import GroupService
from fencepost.txn.transactions.service import TransactionService

from .config import NodeConfig
from .heard_over import COMMITS_ALIVE_AFTER_S, HeardOver
from .sent_away import SentAway
from .server.dispatch import Api, Context
from .voters import VoterChanges

if TYPE_CHECKING:
    from .marker_writer import MarkerWriter
    from .producer_ids import ProducerIds
    from .recent_brokers import RecentBrokers
    from .topics import Topics
    from .transaction_doors import Verifier
    from .transaction_start import TransactionStarts


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts. Handlers read them and call them; none is ever replaced while the node runs."""

    env: Env
    config: NodeConfig
    image: ClusterImage
    controller: Executes
    replicas: ReplicaManager
    groups: GroupService
    transactions: TransactionService
    verifier: "Verifier"
    transaction_starts: "TransactionStarts"
    markers: "MarkerWriter"
    fetch_sessions: FetchSessions
    producer_ids: "ProducerIds"
    topics: "Topics"
    # How the metadata quorum stands, as its leader sees it. Trouble while none can be asked.
    describe_quorum: Callable[[], Awaitable[QuorumView]]
    voters: VoterChanges
    # Waits, for a bounded time, until it is known what became of brokers that were just lost sight of.
    settled: Callable[[], Awaitable[None]]
    # Whether it is known, within so many seconds, all that the cluster had agreed on when this was asked.
    confirm_image: Callable[[float], Awaitable[bool]]
    recent: "RecentBrokers"
    # Whether others may lead by now what this node takes for its own.
    is_cut_off: Callable[[], bool]
    apis: Sequence[Api]
    # Feature name -> the levels that this build can work at.
    supported_features: Mapping[str, tuple[int, int]]
    sent_away: SentAway = field(default_factory=SentAway)
    positions_heard_over: HeardOver = field(default_factory=HeardOver)
    # JoinGroup, and the heartbeats of the new protocol: each waits for the answer to the one before.
    members_heard_over: HeardOver = field(default_factory=HeardOver)
    commits_heard_over: HeardOver = field(
        default_factory=partial(HeardOver, alive_after_s=COMMITS_ALIVE_AFTER_S)
    )
    # Client ids by which this node looks for itself, and whether it was found (`address_check.py`).
    address_checks: dict[str, bool] = field(default_factory=dict)
    # Listener -> what was last found at the address that its clients are told, by the same.
    addresses: dict[str, str] = field(default_factory=dict)

    def endpoint_of(self, broker_id: BrokerId, listener: str) -> Endpoint | ErrorCode:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return ErrorCode.leader_not_available
        endpoint = broker.endpoint(listener)
        return ErrorCode.listener_not_found if endpoint is None else endpoint

    def node_endpoints(self, broker_ids: Sequence[BrokerId], listener: str) -> list[dict[str, Any]]:
        """Where leaders listen, for replies that send a client elsewhere (KIP-951)."""
        found = []
        for broker_id in broker_ids:
            endpoint = self.endpoint_of(broker_id, listener)
            if isinstance(endpoint, Endpoint):
                found.append(
                    {
                        "node_id": broker_id,
                        "host": endpoint.host,
                        "port": endpoint.port,
                        "rack": self.image.brokers[broker_id].rack,
                    }
                )
        return found

    def partition_state(self, topic: Mapping[str, Any], index: int) -> PartitionState | None:
        """The partition of a reply's topic, which carries a name or, in newer versions, an id."""
        if "topic_id" in topic:
            return self.image.partition_by_id(topic["topic_id"], index)
        return self.image.partition(topic["name"] if "name" in topic else topic["topic"], index)

    def topic_name(self, topic_id: UUID | None) -> str | None:
        topic = None if topic_id is None else self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def random_broker_id(self) -> BrokerId:
        """What clients are told to be the controller: any node takes admin requests (as KRaft answers)."""
        alive = self.image.alive_brokers()
        return self.env.rng.choice(alive).broker_id if alive else NO_LEADER


HandlerContext: TypeAlias = Context[Services]
