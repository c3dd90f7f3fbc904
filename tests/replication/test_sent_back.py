"""What an idempotent producer had on its way behind a batch that was sent back."""

import errno

import pytest
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.cluster.wire.batch import BatchHeader, parse_header
from fencepost.replication.partition import Appended
from fencepost.replication.places import IN_FLIGHT_MAX, PLACES_MAX
from fencepost.replication.sent_back import SentBack
from replica_cluster import Cluster
from replica_cluster import play as play_three
from replica_helpers import Node, batch, play


def produce(node: Node, sequence: int, *, pid: int = 7, **fields: int) -> E:
    answer = node.produce(batch(f"{sequence}", pid=pid, sequence=sequence, **fields))
    return getattr(answer, "error", E.none)


@pytest.mark.parametrize("first", [0, 3])
def test_what_follows_a_batch_that_was_sent_back_is_not_out_of_order(first: int) -> None:
    """1. Batch 0 is written and waits for its followers. 2. For batch 1 there is no room on the disk.
    3. Batch 2 was on its way: out of order, said Kafka, and librdkafka began a new epoch, with 0 in it if the lead moved.
    """

    async def scene(node: Node) -> None:
        for sequence in range(first):
            assert produce(node, sequence) is E.none
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        for sequence in range(first, first + 5):
            assert produce(node, sequence) is E.kafka_storage_error
        for sequence in range(first, first + 5):
            assert produce(node, sequence) is E.none

    play(scene)


def test_what_comes_after_all_that_could_be_on_their_way_is_out_of_order() -> None:
    """Its producer has given up the one that was sent back: it must learn that it can't go on like this."""

    async def scene(node: Node) -> None:
        assert produce(node, 0) is E.none
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        for sequence in range(1, 6):
            assert produce(node, sequence) is E.kafka_storage_error
        assert produce(node, 6) is E.out_of_order_sequence_number
        assert produce(node, 1) is E.none
        assert produce(node, 6) is E.out_of_order_sequence_number

    play(scene)


def test_one_that_was_fenced_does_not_stand_for_its_successor() -> None:
    back = SentBack()
    back.note(header(sequence=3, epoch=1), E.not_enough_replicas)
    back.note(header(sequence=0, epoch=0), E.not_enough_replicas)
    assert back.was_behind(header(sequence=4, epoch=1)) is E.not_enough_replicas
    assert back.was_behind(header(sequence=1, epoch=0)) is None


def header(*, sequence: int, epoch: int, pid: int = 7) -> BatchHeader:
    return parse_header(memoryview(batch("x", pid=pid, sequence=sequence, epoch=epoch)))


def test_a_retry_that_is_known_is_no_longer_missing() -> None:
    """1. Batch 0 is written, and its answer is lost. 2. It comes again while it is refused, and again: it is known.
    3. The one that is missing from here on is batch 1.
    """
    back = SentBack()
    back.note(header(sequence=0, epoch=0), E.not_enough_replicas)
    back.written(header(sequence=0, epoch=0))
    for _ in range(3):
        back.note(header(sequence=1, epoch=0), E.kafka_storage_error)
        for sequence in (2, 3, 4, 5):
            assert back.was_behind(header(sequence=sequence, epoch=0)) is E.kafka_storage_error


def test_batches_behind_a_known_retry_are_counted_from_the_one_that_is_missing() -> None:
    async def scene(node: Node) -> None:
        assert produce(node, 0) is E.none
        partition = node.partition()
        known = batch("0", pid=7, sequence=0)
        partition.note_sent_back(known, E.not_enough_replicas)
        assert produce(node, 0) is E.none  # a duplicate
        for _ in range(3):
            node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
            for sequence in range(1, 5):
                assert produce(node, sequence) is E.kafka_storage_error

    play(scene)


def test_one_that_came_earlier_does_not_stand_for_the_one_that_is_missing() -> None:
    back = SentBack()
    back.note(header(sequence=1, epoch=0), E.kafka_storage_error)
    back.written(header(sequence=0, epoch=0))
    assert back.was_behind(header(sequence=2, epoch=0)) is E.kafka_storage_error
    back.written(header(sequence=0, epoch=1))
    assert back.was_behind(header(sequence=2, epoch=0)) is None


def test_another_epoch_is_not_behind_it() -> None:
    async def scene(node: Node) -> None:
        assert produce(node, 0) is E.none
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        assert produce(node, 1) is E.kafka_storage_error
        assert produce(node, 2, epoch=1) is E.out_of_order_sequence_number
        assert produce(node, 0, epoch=1) is E.none

    play(scene)


def test_of_a_log_that_failed_nothing_is_judged() -> None:
    """The batch that failed is not in its producer's history; those behind it were told that they are out of order."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        assert produce(node, 0) is E.none
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.EIO)
        for sequence in range(1, 9):
            late = batch("late", pid=7, sequence=sequence)
            answer = partition.append_as_leader(late, required_acks=-1, now_ms=0)
            assert getattr(answer, "error", None) is E.kafka_storage_error

    play(scene)


def test_one_that_was_sent_away_and_came_by_another_way_is_not_missing() -> None:
    """1. Batch 0 is sent away on a connection: another node leads. 2. It is written there, and this node leads again.
    3. All that comes by that connection is behind batch 0, which is known: what is missing is batch 1.
    """

    async def scene(node: Node) -> None:
        assert produce(node, 0) is E.none
        partition, away = node.partition(), header(sequence=0, epoch=0)
        for _ in range(3):
            node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
            for sequence in range(1, 5):
                sent = batch(f"{sequence}", pid=7, sequence=sequence)
                answer = partition.append_as_leader(sent, required_acks=-1, now_ms=0, behind=away)
                assert getattr(answer, "error", None) is E.kafka_storage_error

    play(scene)


def test_what_another_leader_wrote_meanwhile_is_no_longer_missing() -> None:
    """1. For batch 1 there is no room, and what is on its way behind it is told the same. 2. Node 2 leads, and takes all of
    them. 3. Node 1 leads again, and has no room for batch 6. What follows was told that it is out of order, as too many
    had followed on batch 1.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        await one.write(batch("0", pid=7, sequence=0))

        def told_by_one(first: int) -> list[E]:
            one.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
            sent = [batch("x", pid=7, sequence=each) for each in range(first, first + 5)]
            return [getattr(one.produce(each), "error", E.none) for each in sent]

        assert told_by_one(1) == [E.kafka_storage_error] * 5
        cluster.elect(2)
        for sequence in range(1, 6):
            await two.write(batch("x", pid=7, sequence=sequence))
        await cluster.until(lambda: one.partition().log_end_offset == 6)
        cluster.elect(1)
        assert told_by_one(6) == [E.kafka_storage_error] * 5
        assert isinstance(one.produce(batch("x", pid=7, sequence=6)), Appended)

    play_three(scene)


@pytest.mark.parametrize(("written", "epoch"), [(2, 0), (2, 1)])
def test_what_overtakes_a_batch_that_the_former_leader_has_refused_is_sent_back(
    written: int, epoch: int
) -> None:
    """1. Batch 2 is on its way to node 1, which is stopped. 2. Node 2 leads. 3. Node 1 goes on, and sends batch 2 away.
    4. librdkafka tries again with batch 3, for batch 2 waits for a moment: out of order, said Kafka.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        for sequence in range(written):
            await one.write(batch("x", pid=7, sequence=sequence))
        first = 0 if epoch else written
        cluster.elect(2)
        for sequence in range(first + 1, first + 5):
            assert produce(two, sequence, epoch=epoch) is E.not_leader_or_follower
        for sequence in range(first, first + 5):
            assert produce(two, sequence, epoch=epoch) is E.none
        # by now nobody else is to blame
        assert produce(two, first + 6, epoch=epoch) is E.out_of_order_sequence_number

    play_three(scene)


def test_what_comes_between_the_missing_one_and_those_that_overtook_it_is_sent_back() -> None:
    """1. Batches 3 and 4 overtake batch 2, and are sent back. 2. Their answers are on their way when batch 2 comes, with batch 5
    right behind it: 3 and 4 were sent back just before. Told OUT_OF_ORDER librdkafka began a new epoch.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        for sequence in (0, 1):
            await one.write(batch("x", pid=7, sequence=sequence))
        cluster.elect(2)
        assert [produce(two, each) for each in (3, 4)] == [E.not_leader_or_follower] * 2
        assert [produce(two, each) for each in (2, 5)] == [E.none, E.not_leader_or_follower]
        assert [produce(two, each) for each in (3, 6)] == [E.none, E.not_leader_or_follower]
        assert [produce(two, each) for each in (4, 5, 6, 7)] == [E.none] * 4
        assert produce(two, 9) is E.out_of_order_sequence_number

    play_three(scene)


def test_of_several_that_were_sent_back_each_is_waited_for_in_its_turn() -> None:
    async def scene(node: Node) -> None:
        assert produce(node, 0) is E.none
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        assert [produce(node, each) for each in (1, 2, 3)] == [E.kafka_storage_error] * 3
        assert [produce(node, each) for each in (1, 4)] == [E.none, E.kafka_storage_error]
        # ... and one that never comes again is given up
        told = [produce(node, each) for each in (4, 5, 6, 7, 8)]
        assert told[-1] is E.out_of_order_sequence_number
        assert [produce(node, each) for each in (2, 8)] == [E.none, E.out_of_order_sequence_number]

    play(scene)


def test_what_the_former_leader_never_refuses_is_missing_in_the_end() -> None:
    """Its producer has given it up, or the new leader has lost what the former one had."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        await one.write(batch("x", pid=7, sequence=0))
        cluster.elect(2)
        for _ in range(2):
            told = [produce(two, sequence) for sequence in (2, 3, 4, 5, 6, 7)]
            assert told[5] is E.out_of_order_sequence_number
            assert told[:5] in ([E.not_leader_or_follower] * 5, [told[5]] * 5)
        assert told[0] is E.out_of_order_sequence_number

    play_three(scene)


@pytest.mark.parametrize("known", [False, True])
def test_a_batch_that_was_damaged_on_its_way_is_not_overtaken(known: bool) -> None:
    async def scene(node: Node) -> None:
        first = int(known)
        if known:
            assert produce(node, 0) is E.none
        damaged = batch("x", pid=7, sequence=first)
        damaged[-1] ^= 1
        assert node.produce(damaged).error is E.corrupt_message
        assert produce(node, first + 1) is E.not_leader_or_follower
        assert [produce(node, each) for each in (first, first + 1)] == [E.none] * 2

    play(scene)


def test_of_what_a_former_leader_has_the_second_may_come_late_too() -> None:
    """Batches 1 and 2 were on their way to node 1, and 3 comes between them."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        await one.write(batch("x", pid=7, sequence=0))
        cluster.elect(2)
        assert [produce(two, each) for each in (1, 3)] == [E.none, E.not_leader_or_follower]
        assert [produce(two, each) for each in (2, 3, 4, 5)] == [E.none] * 4
        assert produce(two, 7) is E.out_of_order_sequence_number

    play_three(scene)


@pytest.mark.parametrize("refused", [(1, 2, 3, 1), (2, 3, 1)])
def test_one_that_is_refused_again_does_not_make_those_behind_it_forgotten(
    refused: tuple[int, ...],
) -> None:
    back = SentBack()
    for sequence in refused:
        back.note(header(sequence=sequence, epoch=0), E.not_enough_replicas)
    back.written(header(sequence=1, epoch=0))
    assert back.was_behind(header(sequence=4, epoch=0)) is E.not_enough_replicas


def test_sequence_numbers_begin_again_behind_the_last() -> None:
    back, last = SentBack(), 2**31 - 1
    back.note(header(sequence=last, epoch=0), E.kafka_storage_error)
    assert back.was_behind(header(sequence=0, epoch=0)) is E.kafka_storage_error
    back.written(header(sequence=last, epoch=0))
    assert back.was_behind(header(sequence=1, epoch=0)) is E.kafka_storage_error
    back.written(header(sequence=0, epoch=0))
    assert back.was_behind(header(sequence=2, epoch=0)) is E.kafka_storage_error


def test_who_is_remembered_already_takes_nobodys_place() -> None:
    back = SentBack()
    for pid in range(PLACES_MAX):
        back.note(header(sequence=5, epoch=0, pid=pid), E.not_enough_replicas)
    back.note(header(sequence=4, epoch=0, pid=9), E.not_enough_replicas)
    assert back.was_behind(header(sequence=6, epoch=0, pid=0)) is E.not_enough_replicas


def test_one_that_is_sent_away_once_more_has_as_many_behind_it_once_more() -> None:
    """The first time for a full disk, with all behind it; then on its connection, as another led just then."""
    back = SentBack()
    back.note(header(sequence=1, epoch=0), E.kafka_storage_error)
    behind = [header(sequence=each, epoch=0) for each in (2, 3, 4, 5)]
    assert [back.was_behind(each) for each in behind] == [E.kafka_storage_error] * 4
    for _ in range(2):
        away = header(sequence=1, epoch=0)
        for each in behind:
            back.note_sent_away(away)
            assert back.was_behind(each) is E.not_leader_or_follower
    back.note_sent_away(away)
    assert back.was_behind(header(sequence=6, epoch=0)) is None


def test_who_leads_again_waits_anew_for_what_may_be_on_its_way_from_the_other() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        await one.write(batch("0", pid=7, sequence=0))
        for leader, other in ((two, one), (one, two), (two, one)):
            cluster.elect(2 if leader is two else 1)
            told = [produce(leader, sequence) for sequence in (2, 3, 4, 5, 6, 7)]
            assert told == [E.not_leader_or_follower] * 5 + [E.out_of_order_sequence_number]
            assert other is not leader

    play_three(scene)


def test_more_producers_than_have_a_place_are_told_of_their_gaps() -> None:
    """They pushed each other out, and each was waited for from the beginning, for ever: franz-go tries as long as that."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        many = range(PLACES_MAX + 1)
        for pid in many:
            one.append(batch("x", pid=pid, sequence=0))
        await cluster.until(lambda: two.partition().log_end_offset == len(many))
        cluster.elect(2)
        ended: set[int] = set()
        for _ in range(IN_FLIGHT_MAX + 1):
            for pid in many:
                if produce(two, 2, pid=pid) is E.out_of_order_sequence_number:
                    ended.add(pid)
        assert ended == set(many)

    play_three(scene)
