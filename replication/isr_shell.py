"""Changes of in-sync sets on their way to the controller: collected, sent together, sent again while nobody knows.

INVARIANT  at most one call is on its way; what it proposed stays pending until it was refused for good or the metadata
           log has told what became of it.
PREVENTS   a follower counted out here and in there; three thousand calls where a follower comes back to as many partitions.
PROVED BY  tests/replication/test_isr_shell.py::test_what_nobody_knows_is_asked_again
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env

from .isr_machine import Proposal
from .manager import ReplicaManager
from .partition import Partition
from .partition_machine import NEVER_MS, PartitionMachine

WISHES_MAX: Final = 1_000  # in one call
RETRY_S: Final = 0.05  # Kafka's AlterPartitionManager; then twice as long, and so on
RETRY_S_MAX: Final = 1.0
# One that was refused by name is not proposed again at once: the reason is seldom gone after a millisecond. Then twice as long, as
# long as nothing is heard of that might be the reason: each refusal is a record of the metadata log (`isr_policy.py`).
REFUSED_MS: Final = 500
REFUSED_MS_MAX: Final = 16_000
TICK_S_MAX: Final = 1.0
PARTITIONS_A_TURN: Final = 500


class IsrWish(NamedTuple):
    """`broker_epochs` go with `proposal.isr`: whom the leader heard it from; -1 where it is not known.

    They are those of when it was proposed. Who starts again while it waits may have lost what speaks for it.
    """

    topic_id: UUID
    partition: int
    proposal: Proposal
    broker_epochs: tuple[int, ...] = ()


ProposeIsr = Callable[[Sequence[IsrWish]], Awaitable[Sequence[ErrorCode]]]


_Change = int | frozenset[int]  # who was to join, or all who were to leave


class _Refused(NamedTuple):
    at_ms: int
    wait_ms: int
    seen: object  # all that the controller goes by, as it was known here


class IsrShell:
    """Of one node."""

    def __init__(
        self,
        env: Env,
        manager: ReplicaManager,
        propose: ProposeIsr,
        broker_epoch_of: Callable[[BrokerId], int],
    ) -> None:
        self._env = env
        self._manager = manager
        self._propose = propose
        self._broker_epoch_of = broker_epoch_of
        self._wishes: dict[Partition, IsrWish] = {}
        self._refused: dict[Partition, dict[_Change, _Refused]] = {}
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        spawn = self._env.tasks.spawn
        self._tasks = [
            spawn(self._send(), name="isr changes"),
            spawn(self._tick(), name="isr lags"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    def _now_ms(self) -> int:
        return int(self._env.clock.steady() * 1000)

    # -- what is wished --------------------------------------------------------------------------------

    def look(self, partition: Partition) -> None:
        """A follower has got on, or may join now: is it in sync?"""
        machine = partition.machine
        joiner = machine.joiner(partition.log_start_offset, self._waiting(partition))
        if joiner is None:
            return
        self._manager.counters.isr_expands += 1
        machine.proposed = joiner
        proposal = machine.isr.expand(joiner)
        self._env.log.info(
            "isr_expands",
            partition=str(partition.topic_partition),
            joining=joiner,
            isr=list(proposal.isr),
            cause=f"it has all that is committed, up to {machine.high_watermark}",
        )
        self._wish(partition, proposal)

    def _wish(self, partition: Partition, proposal: Proposal) -> None:
        epochs = tuple(self._broker_epoch_of(BrokerId(member)) for member in proposal.isr)
        index = partition.topic_partition.partition
        self._wishes[partition] = IsrWish(partition.topic_id, index, proposal, epochs)
        self._due.set()

    def _waiting(self, partition: Partition) -> list[_Change]:
        """What was refused, and is not proposed yet: for longer than a moment only while all is as it was."""
        if partition not in self._refused:
            return []
        now_ms, seen = self._now_ms(), self._seen(partition)
        return [
            change
            for change, refused in self._refused[partition].items()
            if now_ms - refused.at_ms < (refused.wait_ms if refused.seen == seen else REFUSED_MS)
        ]

    def _note_refused(self, partition: Partition, wish: IsrWish, error: ErrorCode) -> None:
        isr, wished = partition.machine.isr.isr, frozenset(wish.proposal.isr)
        changes: list[_Change] = [*sorted(wished - isr)]
        # A shrink that only came late is looked at again at once: all writes may wait for it.
        if wished < isr and error is ErrorCode.ineligible_replica:
            changes = [isr - wished]
        known, seen = self._refused.setdefault(partition, {}), self._seen(partition)
        for change in changes:
            before, wait_ms = known.get(change), REFUSED_MS
            if before is not None and before.seen == seen:
                wait_ms = min(2 * before.wait_ms, REFUSED_MS_MAX)
            known[change] = _Refused(self._now_ms(), wait_ms, seen)

    def _seen(self, partition: Partition) -> object:
        machine, brokers = partition.machine, self._manager.image.brokers
        members = [BrokerId(each) for each in sorted(machine.assigned)]
        heard = [(brokers.get(each), self._broker_epoch_of(each)) for each in members]
        return machine.leader_epoch, machine.isr.isr, machine.offline, heard

    async def _tick(self) -> None:
        while True:
            await self._env.clock.sleep(min(self._manager.lag_ms_max / 4000, TICK_S_MAX))
            await self.tick()

    async def tick(self) -> None:
        """Who has not kept up leaves; who was refused is looked at again."""
        now_ms = self._now_ms()
        self._refused = {
            partition: refused
            for partition, refused in self._refused.items()
            if partition.closed is None
            and any(
                now_ms - each.at_ms < each.wait_ms + REFUSED_MS_MAX for each in refused.values()
            )
        }
        seen = 0
        for partition in list(self._manager.partitions.values()):
            machine = partition.machine
            if not machine.replicas:
                continue  # it has no followers, or is one
            partition.look_again()  # one that kept pace is waited for until the lag limit, and nobody tells of that
            seen += 1
            if seen % PARTITIONS_A_TURN == 0:
                await self._env.clock.sleep(0)
            is_all_in = len(machine.isr.state.isr) > len(machine.replicas)
            if not self.look_for_laggards(partition) and not is_all_in:
                self.look(partition)

    def look_for_laggards(self, partition: Partition) -> bool:
        """Whether some are to leave."""
        machine, now_ms = partition.machine, self._now_ms()
        proposal = machine.tick(now_ms, self._waiting(partition))
        if proposal is None:
            return False
        self._manager.counters.isr_shrinks += 1
        leaving = sorted(machine.isr.isr - frozenset(proposal.isr))
        self._env.log.warn(
            "isr_shrinks",
            partition=str(partition.topic_partition),
            leaving=leaving,
            isr=list(proposal.isr),
            cause="; ".join(_lag_of(machine, each, now_ms) for each in leaving),
        )
        self._wish(partition, proposal)
        return True

    # -- and what becomes of it ------------------------------------------------------------------------

    async def _send(self) -> None:
        wait_s = RETRY_S
        while True:
            await self._due.wait()
            self._due.clear()
            while self._wishes:
                wishes = self._take()
                if not wishes:
                    continue
                if await self._ask(wishes):
                    await self._env.clock.sleep(wait_s)
                    wait_s = min(2 * wait_s, RETRY_S_MAX)
                else:
                    wait_s = RETRY_S

    def _take(self) -> list[tuple[Partition, IsrWish]]:
        """The oldest wishes that still make sense."""
        taken = []
        for partition in list(self._wishes)[:WISHES_MAX]:
            wish = self._wishes.pop(partition)
            if partition.closed is None and partition.machine.isr.awaits(wish.proposal):
                taken.append((partition, wish))
        return taken

    async def _ask(self, wishes: list[tuple[Partition, IsrWish]]) -> bool:
        """Whether some must be asked again, later."""
        try:
            answers = await self._propose([wish for _, wish in wishes])
        except Trouble as trouble:
            if trouble.outcome is Outcome.UNKNOWN:
                self._env.log.warn("isr_change_unanswered", count=len(wishes), cause=str(trouble))
            answers = [ErrorCode.request_timed_out] * len(wishes)
        assert len(answers) == len(wishes), f"{len(answers)} answers to {len(wishes)} wishes"
        again = False
        for (partition, wish), error in zip(wishes, answers, strict=True):
            if error is ErrorCode.none:
                continue  # the metadata log tells what it is now
            isr = partition.machine.isr
            if partition.closed is None and isr.on_refused(wish.proposal, error):
                again = True
                self._wishes.setdefault(partition, wish)
            elif not isr.is_in_flight:
                self._note_refused(partition, wish, error)
                partition.look_again()  # who was to join is waited for no more
                name = str(partition.topic_partition)
                self._env.log.info("isr_change_refused", partition=name, cause=error.name)
        return again


def _lag_of(machine: PartitionMachine, broker_id: int, now_ms: int) -> str:
    """By how much, which tells a dead follower from a slow one."""
    replica = machine.replicas.get(broker_id)
    if replica is None:
        return f"node {broker_id} is no replica any more"
    heard = replica.heard
    behind = machine.log_end - max(replica.log_end, 0)
    if heard is not None and heard.at_ms == NEVER_MS:
        return f"node {broker_id} is {behind} records behind and says that it can't go on: its own log has why"
    silent = "" if heard is None else f", last heard {now_ms - heard.at_ms} ms ago"
    return (
        f"node {broker_id} is {behind} records behind and has not had all for"
        f" {now_ms - replica.caught_up_ms} ms{silent}, replica.lag.time.max.ms is {machine.lag_ms_max}"
    )
