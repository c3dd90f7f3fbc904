"""A call into librdkafka that never comes back is left behind, and the loop goes on with another producer."""

import threading
from collections import Counter

import pytest
from brokers import WAIT_S
from confluent_kafka import Consumer, Producer
from fencepost.clients.transactional import Output, TransactionalLoop, loop
from fencepost.clients.transactional.bounded import CallHangs, bounded
from librdkafka import consumer_of, create, producer_of, receive, send, until


def test_a_call_that_never_comes_back_is_given_up() -> None:
    never = threading.Event()
    try:
        with pytest.raises(CallHangs, match=r"it has not come back in 0\.05 s"):
            bounded(never.wait, 0.05, "it")
    finally:
        never.set()


def test_what_a_call_gives_or_raises_is_given_and_raised() -> None:
    assert bounded(lambda: 7, 5.0, "it") == 7

    def fails() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        bounded(fails, 5.0, "it")


class HangsAtItsEnd(Consumer):
    """Like librdkafka when partitions come to it in that very moment."""

    go_on = threading.Event()
    closed = threading.Event()

    def close(self) -> None:
        self.go_on.wait(WAIT_S)
        super().close()
        self.closed.set()


def test_a_group_that_can_not_be_left_keeps_no_process_from_its_end(
    bootstrap, fresh, group, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(loop, "Consumer", HangsAtItsEnd)
    monkeypatch.setattr(loop, "LEAVES_S", 0.05)
    TransactionalLoop(
        bootstrap=bootstrap, topics=[fresh("in")], group_id=group, transform=lambda _: ()
    ).close()
    assert caplog.messages == [
        "leaving the group has not come back in 0.05 s; others go on when the session of this member is over"
    ]
    assert not HangsAtItsEnd.closed.is_set()
    HangsAtItsEnd.go_on.set()
    assert HangsAtItsEnd.closed.wait(WAIT_S)


class HangsOnce(Producer):
    """Like librdkafka when its group's coordinator is gone for good; later, when that is back, its call goes on."""

    back = threading.Event()
    late: list[object]
    calls = 0

    def send_offsets_to_transaction(self, *args) -> None:
        HangsOnce.calls += 1
        if HangsOnce.calls == 2:
            HangsOnce.back.wait(WAIT_S)
            try:
                super().send_offsets_to_transaction(*args)
                super().commit_transaction(WAIT_S)
            except Exception as refused:  # noqa: BLE001 - told to the test below
                HangsOnce.late.append(refused)
            else:
                HangsOnce.late.append(None)
            return
        super().send_offsets_to_transaction(*args)


@pytest.mark.slow
def test_positions_that_a_hanging_call_sends_late_are_refused_and_each_input_shows_once(
    bootstrap, fresh, group, monkeypatch
) -> None:
    """The producer that is left behind even tries to commit when it wakes up: its successor has fenced it."""
    monkeypatch.setattr(loop, "TellingProducer", HangsOnce)
    monkeypatch.setattr(loop, "HANGS_S", 3.0)
    HangsOnce.calls, HangsOnce.late = 0, []
    HangsOnce.back.clear()
    source, sink = fresh("in"), fresh("out")
    for topic in (source, sink):
        create(bootstrap, topic, partitions=1)
    values = [f"v{number}".encode() for number in range(30)]
    send(producer_of(bootstrap), source, values)
    with TransactionalLoop(
        bootstrap=bootstrap,
        topics=[source],
        group_id=group,
        transform=lambda message: [Output(sink, value=message.value())],
        messages_max=10,
        consumer_config={"log_level": 0},
        producer_config={"log_level": 0},
    ) as works:
        until(lambda: works.step() >= 0 and works.committed >= len(values), what="all is committed")
        assert works.aborted >= 1
    HangsOnce.back.set()
    until(lambda: HangsOnce.late, what="the call that hung has come back")
    assert HangsOnce.late[0] is not None, "it committed what somebody else had done"
    with consumer_of(bootstrap, group=f"{group}.check") as consumer:
        consumer.subscribe([sink])
        found = Counter(each.value() for each in receive(consumer, len(values)))
        assert found == Counter(values)
        assert consumer.consume(1, timeout=0.5) == []
