"""How long a transaction has been open, asked of a coordinator that was deposed and has not heard so yet."""

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.txn.transactions.commands import FindOpened
from transaction_node import ID, TransactionNode, on_node, ready

E = ErrorCode


def test_a_coordinator_that_was_deposed_says_of_no_transaction_that_it_is_not_open() -> None:
    """1. another took over, and the producer has begun its transaction there   2. the leader of the positions had word of
    that, and asks here how old it is   3. only now this node hears that it coordinates no more."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()

        async def hears_of_it() -> bool:
            node.lead(TRANSACTION_STATE_TOPIC, 0, 2)
            return True  # what it knows is of now

        node.service._confirm_image = hears_of_it
        said = await node.service.age(FindOpened(ID, who.producer_id, who.producer_epoch))
        assert said is E.not_coordinator

    on_node(scenario, partitions=1)
