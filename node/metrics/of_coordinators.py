"""The coordinators of groups and of transactions on this node."""

from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.txn.groups import metrics as of_groups
from fencepost.txn.groups.groups_machine import GroupsMachine
from fencepost.txn.runtime import metrics as of_both
from fencepost.txn.runtime.coordinator import Coordinator
from fencepost.txn.transactions import metrics as names
from fencepost.txn.transactions.check_back_machine import CheckBackMachine
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.transaction import OPEN, Phase
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

from .gathering import Gathering

if TYPE_CHECKING:
    from ..broker import Broker

IDS_A_STEP: Final = 500
# Whose answers tell a producer that another one has its transactional id.
FENCING: Final = (
    ApiKey.init_producer_id,
    ApiKey.add_partitions_to_txn,
    ApiKey.add_offsets_to_txn,
    ApiKey.end_txn,
    ApiKey.txn_offset_commit,
)
_FENCED: Final = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
_HALVES: Final = {HalfState.WAITING: "waiting", HalfState.PARKED: "parked"}


class OfCoordinators:
    def __init__(self, node: "Broker") -> None:
        self._node = node

    async def __call__(self, gathering: Gathering) -> None:
        node = self._node
        _put_coordinator(gathering, node.groups.coordinator, "group")
        _put_coordinator(gathering, node.transactions.coordinator, "transaction")
        self._groups(gathering)
        await self._transactions(gathering)
        put, sender = gathering.put, node.transactions.sender
        counters = node.transactions.counters
        put(names.ENDED, counters.committed, "committed")
        put(names.ENDED, counters.aborted, "aborted")
        put(names.TIMED_OUT, counters.timed_out)
        answers = [node.dispatcher.counters[key].errors for key in FENCING]
        put(names.FENCED, sum(each.get(code, 0) for each in answers for code in _FENCED))
        put(names.SENT, sender.sent)
        put(names.SENT_AGAIN, sender.sent_again)
        put(names.STUCK, sender.stuck_count)
        put(names.WRITTEN, node.markers.written)
        put(names.VERIFICATIONS, node.verifier.asked)

    def _groups(self, gathering: Gathering) -> None:
        classic = consumer = 0
        for machine in self._node.groups.coordinator.machines():
            assert isinstance(machine, GroupsMachine)
            classic += len(machine.classic.groups)
            consumer += sum(1 for _ in machine.consumer.group_ids())
        gathering.put(of_groups.GROUPS, classic, "classic")
        gathering.put(of_groups.GROUPS, consumer, "consumer")

    async def _transactions(self, gathering: Gathering) -> None:
        by_phase = dict.fromkeys(Phase, 0)
        halves = dict.fromkeys(_HALVES, 0)
        now_ms = self._node.env.clock.now_ms()
        oldest_ms = now_ms
        for machine in self._node.transactions.coordinator.machines():
            assert isinstance(machine, TransactionsMachine)
            for number, transaction in enumerate(list(machine.transactions.values())):
                by_phase[transaction.phase] += 1
                if transaction.phase in OPEN and transaction.start_timestamp >= 0:
                    oldest_ms = min(oldest_ms, transaction.start_timestamp)
                if number % IDS_A_STEP == IDS_A_STEP - 1:
                    await gathering.breathe()
            for addition in machine.additions:
                if isinstance(addition, CheckBackMachine):
                    for half in list(addition.halves.values()):
                        if half.state in halves:
                            halves[half.state] += 1
            await gathering.breathe()
        for phase, count in by_phase.items():
            gathering.put(names.TRANSACTIONS, count, phase.word)
        gathering.put(names.OLDEST, (now_ms - oldest_ms) / 1000)
        for state, word in _HALVES.items():
            gathering.put(names.HALF_MESSAGES, halves[state], word)


def _put_coordinator(gathering: Gathering, coordinator: Coordinator, kind: str) -> None:
    put, counters = gathering.put, coordinator.counters
    for state, count in coordinator.states().items():
        put(of_both.PARTITIONS, count, kind, state)
    put(of_both.LOAD, counters.load_s, kind)
    put(of_both.LOAD_FAILURES, counters.load_failures, kind)
    put(of_both.LOST, counters.lost, kind)
