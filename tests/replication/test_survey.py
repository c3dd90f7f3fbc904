"""A look at all partitions of a node: what is counted, and how old what stands still is."""

from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import control_batch
from fencepost.replication import survey as surveys
from fencepost.replication.partition import Appended
from fencepost.replication.standstill import Reason
from fencepost.replication.survey import Known, Survey
from replica_helpers import ME, PAYMENTS, Node, batch, play, topic_of

TWO = (ME, BrokerId(2))
THREE = (*TWO, BrokerId(3))


async def look(node: Node, known: Known | None = None) -> Survey:
    """All of it, ages too; each step lets others run."""
    survey = node.manager.survey(known)
    for partition in node.manager.partitions.values():
        survey.take(partition, by_topic=True)
    await survey.end(lambda: node.env.clock.sleep(0))
    return survey


def abort(node: Node, pid: int) -> None:
    """A marker that is not waited for."""
    done = node.partition().append_as_leader(
        control_batch(
            commit=False, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=5
        ),
        required_acks=1,
        now_ms=5,
        origin_client=False,
    )
    assert isinstance(done, Appended)


def transactional(value: str, pid: int, at_ms: int, **more: Any) -> bytes:
    return batch(value, pid=pid, transactional=True, timestamp=at_ms, **more)


def test_what_stands_still_is_aged_by_its_first_record() -> None:
    async def scene(node: Node) -> None:
        began_ms = node.env.clock.now_ms()
        await node.write(batch("a"))
        survey = await look(node)
        assert (survey.open_transactions, survey.stable_lag, survey.oldest_open_ms) == (0, 0, 0)
        await node.write(transactional("b", 7, began_ms))
        await node.env.clock.sleep(30)
        await node.write(transactional("c", 8, node.env.clock.now_ms()))
        await node.write(transactional("d", 7, node.env.clock.now_ms(), sequence=1))
        survey = await look(node)
        assert (survey.open_transactions, survey.stable_lag) == (2, 3)
        assert survey.standstills == {Reason.OPEN: 1, Reason.ENDED: 0}
        assert 30_000 <= survey.oldest_open_ms == survey.standstill_ms[Reason.OPEN] < 31_000
        assert survey.hanging == 0
        await node.env.clock.sleep(3_600)
        assert (await look(node)).hanging == 1

    play(scene)


def test_an_end_that_is_not_committed_is_a_standstill_of_another_kind() -> None:
    async def scene(node: Node) -> None:
        node.metadata.change(node.manager, "orders", isr=TWO, replicas=TWO)
        now_ms = node.env.clock.now_ms()
        done = node.partition().append_as_leader(
            transactional("a", 7, now_ms), required_acks=1, now_ms=now_ms
        )
        assert isinstance(done, Appended)
        abort(node, 7)
        await node.env.clock.sleep(10)
        node.partition().on_ack(2, 1, 1, 0, may_join=True)
        survey = await look(node)
        assert survey.standstills == {Reason.OPEN: 0, Reason.ENDED: 1}
        assert survey.standstill_ms[Reason.ENDED] >= 10_000
        assert (survey.open_transactions, survey.oldest_open_ms) == (0, 0)

    play(scene)


def test_the_first_record_is_read_once_however_often_it_is_looked_at(monkeypatch) -> None:
    read: list[int] = []
    really = surveys.written_ms

    async def written_ms(partition: Any, offset: int) -> int:
        read.append(offset)
        return await really(partition, offset)

    async def scene(node: Node) -> None:
        known = Known()
        await node.write(transactional("a", 7, node.env.clock.now_ms()))
        for seconds in (0, 10, 20):
            survey = await look(node, known)
            assert seconds * 1000 <= survey.oldest_open_ms < seconds * 1000 + 1000
            await node.env.clock.sleep(10)
        assert read == [0]

    monkeypatch.setattr(surveys, "written_ms", written_ms)
    play(scene)


def test_one_that_hangs_is_read_though_there_are_always_more_new_ones_than_a_look_reads(
    monkeypatch,
) -> None:
    monkeypatch.setattr(surveys, "AGED_MAX", 1)

    async def scene(node: Node) -> None:
        known = Known()
        hangs_since_ms = node.env.clock.now_ms()
        node.metadata.create(node.manager, topic_of("payments"))
        await node.write(transactional("x", 9, hangs_since_ms), PAYMENTS)
        for sequence in range(3):  # orders-0 comes first, and always has another transaction
            await node.write(transactional("a", 7, node.env.clock.now_ms(), sequence=sequence))
            survey = await look(node, known)
            await node.env.clock.sleep(10)
            abort(node, 7)
            await node.env.clock.sleep(1)
        assert survey.oldest_open_ms >= 20_000

    play(scene)


def test_replicas_that_are_out_of_their_isr_are_counted() -> None:
    async def scene(node: Node) -> None:
        change = node.metadata.change
        change(node.manager, "orders", isr=THREE, replicas=THREE)
        node.metadata.configure(node.manager, "orders", min_insync_replicas="2")
        survey = await look(node)
        counted = survey.under_replicated, survey.under_min_isr, survey.at_min_isr
        assert (*counted, survey.not_in_sync) == (0, 0, 0, 0)
        change(node.manager, "orders", isr=TWO)
        survey = await look(node)
        assert (survey.under_replicated, survey.under_min_isr, survey.at_min_isr) == (1, 0, 1)
        assert survey.topic_under_replicated["orders"] == 1
        change(node.manager, "orders", isr=(ME,))
        survey = await look(node)
        assert (survey.under_replicated, survey.under_min_isr, survey.at_min_isr) == (1, 1, 0)
        change(node.manager, "orders", isr=(BrokerId(2),), leader=BrokerId(2))
        survey = await look(node)
        assert (survey.under_replicated, survey.not_in_sync) == (0, 1)
        change(node.manager, "orders", adding=(ME,))
        assert (await look(node)).not_in_sync == 0  # it is just moving here

    play(scene)


def test_a_follower_that_has_never_been_level_lags_since_that_was_first_seen() -> None:
    async def scene(node: Node) -> None:
        known = Known()
        node.metadata.change(node.manager, "orders", isr=(ME,), replicas=TWO)
        await node.write(batch("a"))
        await node.write(batch("b"))
        assert (await look(node, known)).lag_ms == {2: 0}
        await node.env.clock.sleep(20)
        survey = await look(node, known)
        assert survey.lag_records == {2: 2}
        assert 20_000 <= survey.lag_ms[2] < 21_000

    play(scene)
