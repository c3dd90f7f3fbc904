"""How this node's leaders have their in-sync sets changed: AlterPartition, in the name of its registration."""

from collections.abc import Callable, Sequence

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.controller.commands import AlterPartition, IsrChange, IsrMember
from fencepost.cluster.controller.service import Executes
from fencepost.cluster.metadata.image import BrokerState
from fencepost.replication.replication import IsrWish


class IsrProposals:
    def __init__(self, controller: Executes, broker: Callable[[], BrokerState]) -> None:
        self._controller = controller
        self._broker = broker

    async def ask(self, wishes: Sequence[IsrWish]) -> Sequence[ErrorCode]:
        """An error a wish. Trouble when the controller can't be asked, or may have done it."""
        me = self._broker()
        results = await self._controller.execute(
            AlterPartition(
                broker_id=me.broker_id,
                broker_epoch=me.broker_epoch,
                partitions=tuple(_change(wish) for wish in wishes),
            )
        )
        return [result.error_code for result in results]


def _change(wish: IsrWish) -> IsrChange:
    proposal = wish.proposal
    epochs = wish.broker_epochs or (-1,) * len(proposal.isr)
    return IsrChange(
        topic_id=wish.topic_id,
        partition=wish.partition,
        leader_epoch=LeaderEpoch(proposal.leader_epoch),
        partition_epoch=PartitionEpoch(proposal.partition_epoch),
        isr=tuple(
            IsrMember(broker_id=BrokerId(member), broker_epoch=BrokerEpoch(epoch))
            for member, epoch in zip(proposal.isr, epochs, strict=True)
        ),
    )
