"""A member that adds partitions by writing (transaction.version 2) and its positions by AddOffsetsToTxn (up to 4), and is
ended by its group."""

from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from fencepost.txn.transactions.commands import Ended, EndTransaction
from support.added_scene import AddedScene

POSITIONS = TopicPartition(GROUP_OFFSETS_TOPIC, 0)


def test_a_member_that_also_added_the_old_way_is_told_that_it_is_committed() -> None:
    scene = AddedScene()
    a = scene.starts("job::a")
    scene.writes("job::a", a, version=2)
    scene.writes("job::a", a, version=0, partitions=(POSITIONS,))
    scene.end_group("job", 1, commit=True, a=a)
    scene.finish()
    reply = scene.do(
        EndTransaction(
            transactional_id="job::a",
            producer_id=a.producer_id,
            producer_epoch=a.producer_epoch,
            commit=True,
            bumps_epoch=True,
            ticket=scene.next_ticket(),
        )
    )
    assert reply == Ended(a.producer_id, a.producer_epoch + 1)
