"""What an earlier process on this node led is not led by this one until the cluster has counted it in."""

from fencepost.cluster.base.errors import ErrorCode
from replica_helpers import ORDERS, Node, batch, play


def test_a_process_that_is_not_registered_yet_leads_nothing() -> None:
    """1. Broker 1 leads in epoch 3 and is killed, or loses power with its last writes.
    2. It is started; its metadata log still says: leader 1, epoch 3. Followers of epoch 3 have more than it has now.
    3. Leading on in epoch 3 it would have them cut that off, and its high watermark would go back.
    """

    async def scene(node: Node) -> None:
        manager = node.manager
        partition = manager.partitions[ORDERS]
        manager._may_lead = False
        partition.machine.resign()
        node.metadata.change(manager, "orders", leader_epoch=partition.leader_epoch)
        assert not partition.is_leader
        refused = partition.append_as_leader(batch("a"), required_acks=-1, now_ms=0)
        assert refused.error is ErrorCode.not_leader_or_follower
        manager.lead()
        assert await node.write(batch("a")) == 0

    play(scene)
