"""Transaction groups with librdkafka as members, against a real node."""

import asyncio
from collections.abc import Iterator

import pytest
from admin_door import Served, served
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from fencepost.clients.transactional import (
    AdminRefused,
    DecidedBefore,
    Decision,
    GroupMember,
    MemberWrote,
    TransactionGroup,
)
from librdkafka import consumer_of, create, receive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    settings = {"transaction.group.decisions.max": "3", "group.initial.rebalance.delay.ms": "0"}
    with served(settings) as found:
        yield found


class Job:
    """Writers of one group, and its driver."""

    def __init__(self, node: Served, group: str, topic: str, writers: int = 2) -> None:
        self.node, self.topic = node, topic
        self.group = TransactionGroup(group, node.admin)
        self.members = [GroupMember(node.bootstrap, group, f"w{n}") for n in range(writers)]
        for member in self.members:
            member.start()

    def write(self, text: str, *, silent: int | None = None) -> list[MemberWrote | None]:
        for number, member in enumerate(self.members):
            member.begin()
            if number != silent:
                member.produce(self.topic, value=f"{text}{number}".encode())
        return [member.wrote() for member in self.members]

    def finish(self, decided: Decision | str) -> None:
        for member in self.members:
            member.finish(decided)


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """What is committed, without waiting for more."""
    with consumer_of(bootstrap, group=f"reads-{topic}-{count}") as consumer:
        consumer.subscribe([topic])
        return sorted(each.value().decode() for each in receive(consumer, count))


def test_all_writers_of_a_number_are_read_or_none(node, group, topic) -> None:
    create(node.bootstrap, topic, partitions=3)
    job = Job(node, group, topic)
    for number, outcome in enumerate(("commit", "abort", "commit")):
        wrote = job.write("abc"[number])
        end = job.group.commit if outcome == "commit" else job.group.abort
        decided = end(number, wrote)
        assert decided.is_new
        job.finish(decided)
    assert read(node.bootstrap, topic, 4) == ["a0", "a1", "c0", "c1"]


def test_a_writer_that_wrote_nothing_is_left_out(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("x", silent=1)
    assert wrote[1] is None
    decided = job.group.commit(1, wrote)
    assert [each.member for each in decided.members] == ["w0"]
    job.finish(decided)
    assert read(node.bootstrap, topic, 1) == ["x0"]


def test_members_that_cannot_tell_who_they_are_are_looked_up(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("x")
    assert list(job.group.members().values()) == wrote
    job.finish(job.group.commit(1, job.group.members().values()))
    assert read(node.bootstrap, topic, 2) == ["x0", "x1"]


def test_a_member_may_be_any_client_that_knows_transactions(node, group, topic) -> None:
    """aiokafka beside librdkafka: it is told nothing, and finds its commit done when it asks for it."""
    create(node.bootstrap, topic)
    job = Job(node, group, topic, writers=1)

    async def other() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=node.bootstrap, transactional_id=f"{group}::other"
        ) as producer:
            for number in range(2):
                async with producer.transaction():
                    await producer.send_and_wait(topic, f"other{number}".encode())
                    wrote = job.write(f"n{number}-")
                    members = job.group.members()
                    assert members["w0"] == wrote[0]
                    decided = job.group.commit(number, members.values())
                    assert decided.is_new
                    job.finish(decided)

    asyncio.run(other())
    assert read(node.bootstrap, topic, 4) == ["n0-0", "n1-0", "other0", "other1"]


def test_a_driver_that_died_finds_out_and_does_not_commit_twice(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("first")
    job.group.commit(5, wrote)
    restarted = Job(node, group, topic)
    assert restarted.group.decision(5).outcome == "commit"
    assert restarted.group.decision(6).outcome == "undecided"
    again = restarted.write("again")
    with pytest.raises(DecidedBefore, match="had been decided before: commit") as before:
        restarted.group.commit(5, again)
    assert before.value.decision.members == tuple(wrote)
    restarted.finish("abort")
    assert read(node.bootstrap, topic, 2) == ["first0", "first1"]


def test_no_member_is_committed_before_its_number_is_decided(node, group, topic) -> None:
    """1. A writer is told "commit", or is handed a number that is undecided, or the one before. 2. Its driver commits: with what that
    writer did alone, it would be refused, and half of the number be read for ever."""
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    before = job.group.commit(41, job.write("first"))
    job.finish(before)
    wrote = job.write("second")
    for early in ("commit", job.group.decision(42), before):
        with pytest.raises(ValueError, match="stays open"):
            job.members[0].finish(early)
    decided = job.group.commit(42, wrote)
    assert decided.is_new
    job.finish(job.group.decision(42))
    assert read(node.bootstrap, topic, 4) == ["first0", "first1", "second0", "second1"]


def test_a_repeated_end_is_told_of_its_own_decision(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("x")
    assert job.group.commit(1, wrote).is_new
    assert not job.group.commit(1, wrote).is_new
    with pytest.raises(DecidedBefore):
        job.group.abort(1, wrote)


def test_one_fenced_writer_keeps_the_others_from_being_committed(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("lost")
    GroupMember(node.bootstrap, group, "w0").start()
    with pytest.raises(AdminRefused, match=r"member w0 of .* was fenced") as refused:
        job.group.commit(1, wrote)
    assert refused.value.error == "PRODUCER_FENCED"
    assert job.group.decision(1).outcome == "undecided"
    with pytest.raises(KafkaException):
        job.members[0].finish("abort")
    job.members[1].finish("abort")
    job.members[0] = GroupMember(node.bootstrap, group, "w0")
    job.members[0].start()
    job.finish(job.group.commit(1, job.write("kept")))
    assert read(node.bootstrap, topic, 2) == ["kept0", "kept1"]


def test_a_number_closed_by_an_abort_is_not_committed_by_a_late_end(node, group, topic) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic)
    wrote = job.write("late")
    TransactionGroup(group, node.admin).abort(9)
    with pytest.raises(DecidedBefore):
        job.group.commit(9, wrote)
    job.finish("abort")


def test_a_commit_that_comes_late_does_not_end_what_is_written_after_an_abort(
    node, group, topic
) -> None:
    """1. A driver's commit gets no answer. 2. Its writer is told to abort, and does the work again. 3. The commit arrives."""
    create(node.bootstrap, topic)
    job = Job(node, group, topic, writers=1)
    late = job.write("given up")
    job.finish("abort")
    (writer,) = job.members
    writer.begin()
    writer.produce(topic, value=b"a half")
    writer.producer.flush(10)
    with pytest.raises(AdminRefused, match=r"member w0 of .* was fenced"):
        job.group.commit(1, late)
    writer.produce(topic, value=b"b half")
    job.finish(job.group.commit(2, [writer.wrote()]))
    assert read(node.bootstrap, topic, 2) == ["a half", "b half"]


def test_a_member_that_is_started_anew_goes_on_and_what_it_wrote_before_is_gone(
    node, group, topic
) -> None:
    create(node.bootstrap, topic)
    job = Job(node, group, topic, writers=1)
    before = job.write("before")
    assert job.group.decision(1).outcome == "undecided"
    job.members[0].start()
    with pytest.raises(AdminRefused, match=r"member w0 of .* was fenced"):
        job.group.commit(1, before)
    job.finish(job.group.commit(1, job.write("after")))
    assert read(node.bootstrap, topic, 1) == ["after0"]


def test_numbers_go_up_and_what_is_too_long_ago_is_forgotten(node, group) -> None:
    driver = TransactionGroup(group, node.admin)
    for number in (1, 2, 3, 4):
        driver.commit(number, [])
    assert driver.decision(1).outcome == "forgotten"
    with pytest.raises(AdminRefused, match="too long ago"):
        driver.commit(1, [])


def test_a_note_is_found_with_the_decision(node, group) -> None:
    driver = TransactionGroup(group, node.admin)
    driver.commit(1, [], "twenty rows")
    driver.commit(2, [])
    assert driver.commit(1, [], "another").note == "twenty rows"
    assert [driver.decision(each).note for each in (1, 2, 3)] == ["twenty rows", "", ""]
    assert [each.note for each in driver.decisions()] == ["twenty rows", ""]
    with pytest.raises(AdminRefused, match="note may have 1000 bytes at most, and this has 1001"):
        driver.commit(3, [], "x" * 1001)
