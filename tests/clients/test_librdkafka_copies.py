"""librdkafka's transactions that carry offsets: they come with the commit, and a copier that dies copies each record once."""

from contextlib import ExitStack

import pytest
from brokers import IN_CHAOS, WAIT_S, calm
from confluent_kafka import KafkaException, Message, TopicPartition
from librdkafka import (
    consumer_of,
    create,
    producer_of,
    receive,
    send,
    until,
)
from librdkafka_transactions import (
    abort,
    commit,
    numbered,
    patiently,
    read_settled,
    transact,
    transactional,
    values_of,
    write,
)

PROTOCOLS = [
    pytest.param({"partition_assignment_strategy": "range"}, id="classic"),
    pytest.param({"group_protocol": "consumer"}, id="kip848"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_come_with_the_commit_and_not_with_an_abort(
    bootstrap, topic, group, fresh, protocol
) -> None:
    create(bootstrap, topic)
    producer = transactional(bootstrap, fresh("writer"))
    send(producer_of(bootstrap), topic, numbered(20))
    part = TopicPartition(topic, 0)
    with consumer_of(bootstrap, group, **protocol) as consumer:
        consumer.subscribe([topic])
        receive(consumer, 20)

        def send_offsets(offset: int) -> None:
            position = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(
                position, consumer.consumer_group_metadata(), WAIT_S
            )

        producer.begin_transaction()
        patiently(lambda: send_offsets(5))
        abort(producer)
        [before] = consumer.committed([part], timeout=WAIT_S)
        transact(producer, lambda: send_offsets(12))
        [after] = consumer.committed([part], timeout=WAIT_S)
    assert (before.offset, after.offset) == (-1001, 12)  # OFFSET_INVALID: nothing was committed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_of_a_member_that_left_its_group_must_be_aborted(
    bootstrap, topic, group, fresh, protocol
) -> None:
    """KIP-447: the generation goes with the offsets."""
    create(bootstrap, topic)
    send(producer_of(bootstrap), topic, numbered(3))
    with consumer_of(bootstrap, group, **protocol) as member:
        member.subscribe([topic])
        receive(member, 3)
        stale = member.consumer_group_metadata()
    producer = transactional(bootstrap, fresh("writer"))
    producer.begin_transaction()
    write(producer, topic, [b"never"])
    with pytest.raises(KafkaException) as caught:
        patiently(
            lambda: producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, 3)], stale, WAIT_S
            )
        )
    assert caught.value.args[0].txn_requires_abort()
    abort(producer)
    with consumer_of(bootstrap, group, **protocol) as member:
        [there] = member.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        assert there.offset == -1001
    assert [message.value() for message in read_settled(bootstrap, topic)] == numbered(3)


@pytest.mark.slow
def test_a_copier_that_dies_again_and_again_copies_every_record_once_in_order(
    bootstrap, topic, group, fresh
) -> None:
    target, name = fresh("target"), fresh("copier")
    for each in (topic, target):
        create(bootstrap, each, partitions=3)
    producer = producer_of(bootstrap)
    for part in range(3):
        send(producer, topic, numbered(200), partition=part)
    copied = 0
    for lives in (3, 5, 2, 1_000):
        with ExitStack() as stack:
            copier = Copier(bootstrap, topic, target, group, name, stack)
            while copier.committed < lives and copied < 600:
                copied += copier.copy_some()
            if copied < 600:
                copier.begin_some()  # and dies
    got = values_of(read_settled(bootstrap, target, 3))
    assert got == {part: numbered(200) for part in range(3)}


class Copier:
    """Consumes, produces, commits both at once: a life of one."""

    def __init__(self, bootstrap, source, target, group, name, stack: ExitStack) -> None:
        self.producer = transactional(bootstrap, name)
        self.consumer = stack.enter_context(consumer_of(bootstrap, group))
        self.consumer.subscribe([source])
        self.target = target
        self.committed = 0
        until(self._joined, what="the copier has partitions")

    def _joined(self) -> bool:
        """So that its first offsets carry a generation, too."""
        early = self.consumer.poll(0.1)
        if early is not None:
            assert early.error() is None, early.error()
            self.consumer.seek(TopicPartition(early.topic(), early.partition(), early.offset()))
        return bool(self.consumer.assignment())

    def copy_some(self) -> int:
        """How many records; none when the transaction had to be aborted."""
        try:
            count = self.begin_some()
            commit(self.producer)
        except KafkaException as error:
            if not (IN_CHAOS and error.args[0].txn_requires_abort()):
                raise
            abort(self.producer)
            self._rewind()
            return 0
        self.committed += 1
        return count

    def begin_some(self) -> int:
        # A rebalance between the two makes the offsets those of an old generation, which are refused.
        metadata = self.consumer.consumer_group_metadata()
        batch: list[Message] = []
        until(
            lambda: bool(batch.extend(self.consumer.consume(40, timeout=0.3)) or batch),
            what="a record to copy",
        )
        self.producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in batch:
            assert message.error() is None, message.error()
            self.producer.produce(self.target, message.value(), partition=message.partition())
            ends[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(batch[0].topic(), part, end) for part, end in ends.items()]
        patiently(lambda: self.producer.send_offsets_to_transaction(offsets, metadata, WAIT_S))
        self.producer.flush(WAIT_S)
        return len(batch)

    def _rewind(self) -> None:
        for there in self.consumer.committed(self.consumer.assignment(), timeout=WAIT_S):
            self.consumer.seek(TopicPartition(there.topic, there.partition, max(there.offset, 0)))


@calm
def test_a_position_that_is_being_decided_is_waited_for_though_the_assignment_changes(
    bootstrap, topic, fresh
) -> None:
    """Where it may not ask at once again, librdkafka takes the offset beside UNSTABLE_OFFSET_COMMIT for what is stored.
    With Kafka's -1 that is nothing, and it reads again from the beginning (auto.offset.reset)."""
    group = fresh("group")
    create(bootstrap, topic, partitions=2)
    send(producer_of(bootstrap), topic, numbered(10), partition=0)
    mover = transactional(bootstrap, fresh("mover"))
    with consumer_of(bootstrap, group, isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert receive(reader, 1)[0].offset() == 0
        members = reader.consumer_group_metadata()
        for offset in (5, 7):  # nobody decides the second one yet
            mover.begin_transaction()
            mover.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], members, WAIT_S)
            if offset == 5:
                mover.commit_transaction(WAIT_S)
        got = []
        for _ in range(20):  # another assignment while the answer for the first one is on its way
            reader.unassign()
            reader.assign([TopicPartition(topic, 0)])
            reader.incremental_assign([TopicPartition(topic, 1)])
            message = reader.poll(0.3)
            got += [message.offset()] if message is not None else []
        assert not got
        abort(mover)
        assert receive(reader, 1)[0].offset() == 5
