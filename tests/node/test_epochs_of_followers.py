"""OffsetForLeaderEpoch at a replica that does not lead: a consumer would take where its log ends for a truncation."""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster

E = ErrorCode


def test_where_an_epoch_ends_is_told_by_its_leader_alone() -> None:
    cluster = Cluster()

    async def end(node_id: int, current: int) -> Any:
        wanted = {"partition": 0, "current_leader_epoch": current, "leader_epoch": 0}
        topics = [{"topic": "t", "partitions": [wanted]}]
        reply = await cluster.ask(node_id, ApiKey.offset_for_leader_epoch, topics=topics)
        answer = reply.topics[0].partitions[0]
        return answer.error_code, answer.end_offset

    async def scenario() -> None:
        await cluster.create("t")
        state = cluster.partition()
        assert await cluster.produce(state.leader) is E.none
        for node_id in state.replicas:
            told = (E.none, 1) if node_id == state.leader else (E.not_leader_or_follower, -1)
            for current in (-1, state.leader_epoch):
                assert await end(node_id, current) == told

    cluster.play(scenario)
