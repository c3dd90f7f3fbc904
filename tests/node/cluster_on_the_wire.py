"""A cluster as it tells of itself, for commands that ask it by the wire: no node runs."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import leading
from fencepost.node.cli.wire import Wire

NOBODY = (
    "Nobody leads the metadata quorum: node 2 of voters 1, 2, 3 reaches 0 of the others (1 and 3 can't be"
    " reached); a majority is 2: start one of them."
)
Answer = SimpleNamespace


class ToldCluster:
    """Nodes 1 to 3, which vote, and partition orders-0, whose leader is `leader`. `asked` is all that was heard."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Wire, "_ask_at", self._ask_at)
        monkeypatch.setattr(leading, "LOOK_S", 0.0)
        monkeypatch.setattr(leading, "ELECTED_S", 0.0)
        self.leads: int | None = 1  # the quorum
        self.blind: set[int] = set()  # ports of nodes that see no leader, though there is one
        self.down: set[int] = set()
        self.leader = 1
        self.replicas = [1, 2, 3]
        self.voters = [1, 2, 3]
        self.internal: list[Any] = []  # topics
        self.asked: list[tuple[ApiKey, dict[str, Any]]] = []
        self.dialled: list[tuple[str, int]] = []

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        self.dialled.append(address)
        if address[1] in self.down:
            raise Trouble(f"can't connect to {address[0]}:{address[1]}")
        self.asked.append((key, fields))
        match key:
            case ApiKey.describe_quorum:
                return self._quorum(address[1])
            case ApiKey.describe_cluster:
                return Answer(cluster_id="c", brokers=[self._broker(each) for each in (1, 2, 3)])
            case ApiKey.list_partition_reassignments:
                return Answer(topics=[])
            case ApiKey.describe_topic_partitions:
                return Answer(topics=[self._orders(), *self.internal], next_cursor=None)
            case ApiKey.describe_log_dirs:
                return Answer(results=[])
            case ApiKey.unregister_broker | ApiKey.add_raft_voter | ApiKey.remove_raft_voter:
                return Answer(error_code=ErrorCode.none, error_message=None)
        raise AssertionError(key)

    @property
    def keys(self) -> list[ApiKey]:
        return [key for key, _ in self.asked]

    def _quorum(self, port: int) -> Any:
        if self.leads is None or port in self.blind:
            return Answer(error_code=ErrorCode.not_controller, error_message=NOBODY, topics=[])
        voters = [Answer(replica_id=each, log_end_offset=7) for each in self.voters]
        told = Answer(
            leader_id=self.leads,
            high_watermark=7,
            current_voters=voters,
            observers=[],
            error_code=ErrorCode.none,
        )
        return Answer(error_code=ErrorCode.none, topics=[Answer(partitions=[told])])

    def _broker(self, node: int) -> Any:
        is_fenced = self.leads is not None and 9000 + node in self.down
        return Answer(
            broker_id=node, host="127.0.0.1", port=9000 + node, rack=None, is_fenced=is_fenced
        )

    def _orders(self) -> Any:
        partition = Answer(
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=1,
            replica_nodes=self.replicas,
            isr_nodes=self.replicas,
            eligible_leader_replicas=[],
            offline_replicas=[] if self.leader != NO_LEADER else self.replicas,
        )
        return Answer(
            name="orders", topic_id=UUID(int=1), error_code=ErrorCode.none, partitions=[partition]
        )
