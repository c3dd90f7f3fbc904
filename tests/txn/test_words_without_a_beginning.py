"""A coordinator's yes to a leader that asks names when the transaction began, or it is no yes: by that, and nothing else,
the partition tells a marker that was sent twice from one that ends the next transaction of the same epoch."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_TIMESTAMP, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.node.transaction_doors import Verifier
from fencepost.node.transaction_frames import Question
from transaction_node import ID, NODE, TransactionNode, later, on_node, ready

E = ErrorCode
T0 = TopicPartition("t", 0)


def test_a_yes_of_a_coordinator_that_goes_in_that_moment_is_no_yes_without_a_beginning() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)

        async def certain(_within_s: float) -> bool:
            return True

        stub: Any = SimpleNamespace()
        verifier = Verifier(
            env=node.env, node_id=NODE, image=node.image, replicas=stub,
            transactions=node.service, door=None, confirm_image=certain,
        )  # fmt: skip
        log = node.logs[0]
        log.commits_at_once = False
        other = later(node.init("other"))  # what is on its way is waited for by all answers
        await asyncio.sleep(0.01)
        question = Question(ID, who.producer_id, who.producer_epoch, (T0,), False)
        asked = later(verifier._answer(question))
        await asyncio.sleep(0.01)
        assert not asked.done()
        log.commit()  # one frame is read in this turn of the loop ...
        node.lead(TRANSACTION_STATE_TOPIC, 0, 2)  # ... and so is the next
        word = await asked
        await other
        assert word.codes != [E.none] or word.started_ms != NO_TIMESTAMP

    on_node(scenario, partitions=1)
