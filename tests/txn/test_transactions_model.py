"""Producers, their successors and their ghosts at one transactional id, with a coordinator that moves at any time.

What clients were told is compared with what is in the log, which is all that the next coordinator has.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.transactions.commands import Ended, Initialised
from fencepost.txn.transactions.records import TransactionRecord
from fencepost.txn.transactions.registry import decode
from fencepost.txn.transactions.transaction import DECIDED, IDLE, Identity, Phase, Transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transaction_scene import ID, Scene

E = ErrorCode
PARTITIONS = [TopicPartition("orders", n) for n in range(3)]


class Client:
    """One incarnation of the producer. A new client counts its epochs on; an old one keeps its own."""

    def __init__(self, identity: Identity, *, is_new: bool) -> None:
        self.identity = identity
        self.is_new = is_new
        self.added: set[TopicPartition] = set()  # what it was told is in its transaction
        self.began_at = 0  # how long the log was
        self.asked_to: bool | None = None  # commit or abort: the answer was lost, so it asks again


class Asked(NamedTuple):
    """A request whose answer is to come, or was lost: it may arrive again at any time."""

    ask: Callable[[], Any]
    heard: Callable[[Any], None]


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.clients: list[Client] = []
        self.given: list[Identity] = []
        self.parked: dict[int, Callable[[Any], None]] = {}
        self.ended: list[tuple[Client, Identity, bool]] = []  # what new clients have asked to end

    # -- what may happen -------------------------------------------------------------------------

    @rule(is_new=st.booleans())
    def a_producer_begins(self, is_new: bool) -> None:
        def heard(reply: Any) -> None:
            if isinstance(reply, Initialised):
                identity = Identity(reply.producer_id, reply.producer_epoch)
                assert identity not in self.given, f"{identity} is given twice"
                self.given.append(identity)
                self.clients.append(Client(identity, is_new=is_new))

        self._hear(self.scene.init(timeout_ms=60_000), heard)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_producer_begins_again(self, data: st.DataObject) -> None:
        """KIP-360; perhaps the answer before was lost, perhaps it is a ghost."""
        client = self._some(data)
        named = client.identity

        def heard(reply: Any) -> None:
            if isinstance(reply, Initialised) and client.identity == named:
                client.identity = Identity(reply.producer_id, reply.producer_epoch)
                client.added.clear()
                client.asked_to = None
                self.given.append(client.identity)

        is_lost = data.draw(st.booleans())
        told = self.scene.init(producer_id=named.producer_id, producer_epoch=named.producer_epoch)
        if not is_lost:
            self._hear(told, heard)
        elif isinstance(told, Initialised):
            self.given.append(Identity(told.producer_id, told.producer_epoch))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def partitions_are_added(self, data: st.DataObject, partition: TopicPartition) -> None:
        client = self._some(data)
        who = client.identity
        if client.asked_to is not None:
            return

        def heard(reply: Any) -> None:
            if reply is E.none and client.identity == who:
                if not client.added:
                    client.began_at = len(self.scene.log)
                client.added.add(partition)
                assert any(
                    it.phase is Phase.ONGOING and it.identity == who and partition in it.partitions
                    for it in self._states()
                )

        version = 2 if client.is_new else 0
        self._hear(self.scene.add(who, partition, version=version), heard)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), is_lost=st.booleans())
    def a_transaction_is_ended(self, data: st.DataObject, commit: bool, is_lost: bool) -> None:
        client = self._some(data)
        who, added = client.identity, frozenset(client.added)
        commit = commit if client.asked_to is None else client.asked_to
        reply = self.scene.end(who, commit=commit, bumps=client.is_new)
        if isinstance(reply, int):
            self.parked[reply] = lambda _: None  # of the transaction after: it asks again
            return
        if not isinstance(reply, Ended):
            return
        self._check_end(client, who, added, commit=commit)
        if client.is_new:
            self.ended.append((client, who, commit))
        client.asked_to = commit if is_lost else None
        if not is_lost:
            client.identity = Identity(reply.producer_id, reply.producer_epoch)
            client.added.clear()
            self.given.append(client.identity)

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), commit=st.booleans())
    def an_end_arrives_late(self, data: st.DataObject, commit: bool) -> None:
        """KAFKA-17754: whatever has happened since, it ends nothing but what it ended already."""
        _, who, had_commit = data.draw(st.sampled_from(self.ended))
        before = self.scene.now()
        reply = self.scene.end(who, commit=commit, bumps=True)
        assert self.scene.now() == before
        if isinstance(reply, Ended):
            assert commit == had_commit

    @precondition(lambda self: self.scene.sent)
    @rule()
    def the_markers_are_written(self) -> None:
        self.scene.written()

    @rule(ms=st.sampled_from([1, 4_000, 59_999, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.scene.pass_time(ms)

    @precondition(lambda self: self.scene.log)
    @rule(is_compacted=st.booleans())
    def the_coordinator_moves(self, is_compacted: bool) -> None:
        """Whoever waited hears nothing, and asks again."""
        log = self.scene.log
        whole = list(log)
        self.parked.clear()
        self.scene = self.scene.moved(list(dict(log).items()) if is_compacted else log)
        self.scene.log = whole

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        for ticket in [each for each in self.parked if each in self.scene.answers]:
            self.parked.pop(ticket)(self.scene.answers.pop(ticket))
        waiting = self.scene.machine.waiting.get(ID, ())
        if waiting:
            assert self.scene.now().phase in DECIDED
            assert ("wait", ID) in self.scene.timers

    @invariant()
    def what_is_decided_is_being_carried_out(self) -> None:
        now = self.scene.machine.transactions.get(ID)
        if now is not None and now.phase in DECIDED:
            assert [each.commit for each in self.scene.sent] == [now.phase is Phase.PREPARE_COMMIT]
            assert self.scene.sent[0].partitions == now.partitions
        else:
            assert self.scene.sent == []

    @invariant()
    def an_open_transaction_ends_in_time(self) -> None:
        now = self.scene.machine.transactions.get(ID)
        has_timer = ("timeout", ID) in self.scene.timers
        assert has_timer == (now is not None and now.phase is Phase.ONGOING)

    def _check_end(
        self, client: Client, who: Identity, added: frozenset[TopicPartition], *, commit: bool
    ) -> None:
        """The newest decision in the log is the one that the client asked for, of all that it was told is in it."""
        decided = [it for it in self._states() if it.phase in DECIDED]
        last = decided[-1]
        assert (last.phase is Phase.PREPARE_COMMIT) == commit
        assert added <= set(last.partitions)
        if client.is_new:
            assert last.producer_id == who.producer_id
            assert last.producer_epoch == who.producer_epoch + 1
        if commit and added:
            since = [it.phase for it in self._states()[client.began_at :]]
            assert Phase.PREPARE_ABORT not in since, "a part of it was aborted"

    def _states(self) -> list[Transaction]:
        found = []
        for key, value in self.scene.log:
            record = decode(key, value)
            assert isinstance(record, TransactionRecord)
            found.append(record.transaction)
        return found

    def _some(self, data: st.DataObject) -> Client:
        """The last one more often than its ghosts."""
        at = data.draw(st.integers(0, 3))
        return self.clients[-1] if at else data.draw(st.sampled_from(self.clients))

    def _hear(self, reply: Any, heard: Callable[[Any], None]) -> None:
        if type(reply) is int:
            self.parked[reply] = heard
        else:
            heard(reply)

    def teardown(self) -> None:
        """Left alone, it comes to rest, and a producer can work."""
        self.scene.pass_time(120_000)
        self.scene.written()
        self.scene.pass_time(120_000)
        self.scene.written()
        if self.scene.log:
            assert self.scene.now().phase in IDLE
            assert isinstance(self.scene.init(), Initialised)


Transactions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = pytest.mark.slow(Transactions.TestCase)
