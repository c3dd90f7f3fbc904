"""The cluster's faults, aimed at transactions: whoever coordinates them is hit most, and again where it moves to."""

import asyncio
from typing import Any, Final

from fencepost.cluster.base.ids import BrokerId

from ..workloads.txn_answers import Partition
from ..workloads.txn_book import Book
from . import aimed_transactions, late_words
from .cluster_builds import UPGRADE
from .cluster_fault_table import FAULTS, USUAL
from .cluster_faults import ClusterFaults, Fault
from .cluster_members import upgrade
from .cluster_nodes import node_name
from .transaction_watch import STATE_TOPIC

HUNTS_MAX: Final = 4
AT_A_DELETION: Final = "at-a-deletion"  # of topics that clients use; only their scene tells of it
COORDINATED: Final = (STATE_TOPIC, "__consumer_offsets")


class TransactionFaults(ClusterFaults):
    """`made` are partitions of scenes that are to be like all others in the end, `unmarked` topics that may be gone by then."""

    book: Book  # of those who write in transactions

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.made: list[Partition] = []
        self.unmarked: list[str] = []

    def leader(self) -> BrokerId:
        """A partition's leader; every second time a coordinator's."""
        return self._coordinator() if self.rng.random() < 0.5 else super().leader()

    def _coordinator(self) -> BrokerId:
        image = self.nodes.image
        topics = [each for each in COORDINATED if image is not None and each in image.topics]
        if image is None or not topics:
            return self.any()
        # Transactions' more often than groups'.
        topic = image.topics[topics[0] if self.rng.random() < 0.7 else self.rng.choice(topics)]
        leader = self.rng.choice(topic.partitions).leader
        return leader if leader in self.nodes.ids else self.any()

    async def kill_coordinator(self) -> None:
        await self._down([self._coordinator()], self.kill_now)

    async def pause_coordinator(self) -> None:
        """It wakes, and writes what it had decided, or sends markers that others have sent meanwhile."""
        self.pause_shortly(self._coordinator())
        await asyncio.sleep(self.hold())

    async def cut_coordinator(self) -> None:
        """From one of the others: it may still decide, or still send, but not both."""
        one = self._coordinator()
        other = self.rng.choice([id_ for id_ in self.nodes.ids if id_ != one] or [one])
        names = node_name(one), node_name(other)
        self.world.net.cut(*names, one_way=self.rng.random() < 0.6)
        await asyncio.sleep(self.hold())
        self.world.net.heal(*names)

    async def delay_client(self) -> None:
        """Its requests to a node are slow and uneven: an EndTxn may come after one sent later (KAFKA-17754), a batch after
        the end of its transaction (KIP-890)."""
        client = self.rng.choice(self.clients)
        node_id = self._coordinator() if self.rng.random() < 0.6 else self.leader()
        link = self.world.net.link(client, node_name(node_id))
        link.latency_s = (0.001, self.rng.choice((0.3, 1.0)))
        await asyncio.sleep(self.rng.uniform(0.5, 3.0))
        link.latency_s = (0.000_1, 0.001)

    async def pause_client(self) -> None:
        """Its processes stand still, perhaps for longer than their group waits for them: who wakes has lost its partitions."""
        client = self.rng.choice(self.clients)
        self.world.pause(client)
        await asyncio.sleep(self.rng.choice((0.3, 2.0, 7.0)) * self.rng.uniform(0.8, 1.2))
        if self.world.is_paused(client):
            self.world.resume(client)

    async def hunt(self) -> None:
        """Wherever the coordinator goes, it is killed there, too."""
        for _ in range(self.rng.randint(2, HUNTS_MAX)):
            self.kill_now(self._coordinator())
            await asyncio.sleep(self.rng.choice((0.3, 1.0, 3.0)) * self.rng.random())

    async def at_a_decision(self) -> None:
        """Struck just when an outcome is committed, or a marker is written."""
        moment = self.rng.choice(("decided", "marked"))
        strikes = (self.kill_now, self.power_now, self.pause_shortly, self.kill_other)
        self._arm(moment, self.rng.choice(strikes))
        await asyncio.sleep(1.0)

    async def at_a_deletion(self) -> None:
        """A coordinator of what is done in a topic sleeps while that is deleted, and maybe made anew."""
        self._arm("deleting", self._pause_for_both)
        await asyncio.sleep(0.5)

    def _pause_for_both(self, node_id: int) -> None:
        """Longer than two requests take, and not so long that another leads what it leads."""
        self.pause_for(node_id, lambda: self.rng.uniform(0.05, 0.6))


TRANSACTION_FAULTS: Final[dict[str, Fault]] = {
    **FAULTS,
    "kill-coordinator": TransactionFaults.kill_coordinator,
    "pause-coordinator": TransactionFaults.pause_coordinator,
    "cut-coordinator": TransactionFaults.cut_coordinator,
    "delay-client": TransactionFaults.delay_client,
    "pause-client": TransactionFaults.pause_client,
    "upgrade": upgrade,
    "hunt": TransactionFaults.hunt,
    "at-a-decision": TransactionFaults.at_a_decision,
    AT_A_DELETION: TransactionFaults.at_a_deletion,
    "left-behind": aimed_transactions.left_behind,
    "late-batch": aimed_transactions.late_batch,
    "late-word": late_words.late_word,
}
# An upgrade begins with another cluster, and scenes are for moments that they are aimed at.
ASKED_FOR: Final = (UPGRADE, "late-batch", "late-word", AT_A_DELETION)
# Those of transactions twice as often as the others.
OF_TRANSACTIONS: Final = tuple(
    name for name in TRANSACTION_FAULTS if name not in FAULTS and name not in ASKED_FOR
)
ALL_USUAL: Final = (*USUAL, *OF_TRANSACTIONS, *OF_TRANSACTIONS)
