"""What an earlier process on this node led is not led by this one until the cluster has counted it in."""

from unittest.mock import Mock

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import NO_BROKER_EPOCH
from fencepost.replication.follower_streams import FollowerStreams
from replica_helpers import ME, ORDERS, Node, batch, play


def test_a_process_that_is_not_registered_yet_leads_nothing() -> None:
    """1. Broker 1 leads in epoch 3 and is killed, or loses power with its last writes.
    2. It is started; its metadata log still says: leader 1, epoch 3. Followers of epoch 3 have more than it has now.
    3. Leading on in epoch 3 it would have them cut that off, and its high watermark would go back.
    """

    async def scene(node: Node) -> None:
        manager = node.manager
        partition = manager.partitions[ORDERS]
        manager.is_registered = False
        partition.machine.resign()
        node.metadata.change(manager, "orders", leader_epoch=partition.leader_epoch)
        assert not partition.is_leader
        refused = partition.append_as_leader(batch("a"), required_acks=-1, now_ms=0)
        assert refused.error is ErrorCode.not_leader_or_follower
        manager.lead()
        assert await node.write(batch("a")) == 0

    play(scene)


def test_a_process_that_is_not_registered_yet_tells_no_leader_the_epoch_of_the_one_before() -> None:
    """It would be let into ISRs in the name of a process that had another log."""

    async def scene(node: Node) -> None:
        manager = node.manager
        following = FollowerStreams(node.env, manager, door=None)  # type: ignore[arg-type]
        manager.image.brokers[ME] = broker = Mock(broker_epoch=7)
        assert following.broker_epoch() == broker.broker_epoch
        manager.is_registered = False
        assert following.broker_epoch() == NO_BROKER_EPOCH
        manager.lead()
        assert following.broker_epoch() == broker.broker_epoch

    play(scene)
