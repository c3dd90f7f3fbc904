"""Half messages with check-back, with librdkafka, against a real node."""

import gc
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from admin_door import Served, served
from fencepost.clients.transactional import (
    AdminApi,
    AdminRefused,
    AdminUnreachable,
    Checker,
    HalfMessageIsOver,
    HalfMessageProducer,
    HalfOutcome,
    Verdict,
)
from librdkafka import consumer_of, create, receive, until

pytestmark = pytest.mark.slow
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.check.interval.ms": "300",
    "transaction.check.max": "2",
    "transaction.check.delivery.timeout.ms": "1000",
}


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with served(SETTINGS) as found:
        yield found


class Shop(HalfMessageProducer):
    """Its database is a dict; what a local transaction comes to is told by the argument."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.orders: dict[str, Verdict] = {}
        self.asked: list[str] = []

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        if isinstance(argument, Exception):
            raise argument
        self.orders[half_id] = argument
        return argument

    def check_local_transaction(self, half_id: str) -> Verdict:
        self.asked.append(half_id)
        return self.orders.get(half_id, Verdict.ROLLBACK)


def committed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with consumer_of(bootstrap, group=f"reads-{topic}-{count}") as consumer:
        consumer.subscribe([topic])
        return sorted(each.value() for each in receive(consumer, count))


def halves(node: Served, group: str, **wanted: str) -> list[dict[str, Any]]:
    found = node.admin.call("GET", "/v1/checks")["half_messages"]
    ours = [each for each in found if each["group"] == group]
    return [each for each in ours if wanted.items() <= each.items()]


def test_what_the_local_transaction_comes_to_is_what_readers_see(node, group, topic) -> None:
    create(node.bootstrap, topic)
    with Shop(node.bootstrap, group, node.admin) as shop:
        outcomes = [
            shop.send(topic, half_id=f"o{n}", argument=verdict, value=f"o{n}".encode())
            for n, verdict in enumerate((Verdict.COMMIT, Verdict.ROLLBACK, Verdict.COMMIT))
        ]
    expected = [HalfOutcome.COMMITTED, HalfOutcome.ROLLED_BACK, HalfOutcome.COMMITTED]
    assert outcomes == expected
    assert committed(node.bootstrap, topic, 2) == [b"o0", b"o2"]
    assert halves(node, group) == []


def test_a_half_message_is_read_by_nobody_until_it_is_committed(node, group, topic) -> None:
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    half = shop.send_half(topic, half_id="o", value=b"half")
    with consumer_of(node.bootstrap, group=f"reads-{topic}") as consumer:
        consumer.subscribe([topic])
        assert consumer.consume(1, timeout=1.0) == []
        assert half.commit() is HalfOutcome.COMMITTED
        assert receive(consumer, 1)[0].value() == b"half"
    with pytest.raises(RuntimeError, match="ended already"):
        half.rollback()


def test_readers_do_not_wait_for_a_half_message_whose_name_was_refused(node, group, topic) -> None:
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    with pytest.raises(AdminRefused, match=r"1,?000"):
        shop.send(topic, half_id="o" * 1_001, argument=Verdict.COMMIT, value=b"refused")
    assert shop.send(topic, half_id="o", argument=Verdict.COMMIT, value=b"o")
    assert committed(node.bootstrap, topic, 1) == [b"o"]
    assert list(shop.orders) == ["o"]


def test_a_producer_that_died_is_answered_for_by_another_of_its_group(node, group, topic) -> None:
    create(node.bootstrap, topic)
    dies = Shop(node.bootstrap, group, node.admin)
    for name in ("paid", "never-heard-of"):
        dies.send_half(topic, half_id=name, value=name.encode())
    del dies  # and with it all that it knew
    with Shop(node.bootstrap, group, node.admin) as lives:
        lives.orders["paid"] = Verdict.COMMIT
        until(lambda: not halves(node, group), what="both are decided")
        assert set(lives.asked) == {"never-heard-of", "paid"}
    assert committed(node.bootstrap, topic, 1) == [b"paid"]


def test_a_local_transaction_that_raises_is_left_to_a_check(node, group, topic) -> None:
    create(node.bootstrap, topic)
    with Shop(node.bootstrap, group, node.admin) as shop:
        with pytest.raises(ConnectionError):
            shop.send(topic, half_id="o", argument=ConnectionError("database"), value=b"o")
        until(lambda: "o" in shop.asked and not halves(node, group), what="it is rolled back")
        done = shop.send(topic, half_id="next", argument=Verdict.COMMIT, value=b"next")
        assert done is HalfOutcome.COMMITTED, "and the next one has a lane"


def test_a_commit_that_comes_after_a_rollback_is_told_of_it(node, group, topic) -> None:
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    half = shop.send_half(topic, half_id="slow", value=b"slow")
    with Shop(node.bootstrap, group, node.admin):
        until(lambda: not halves(node, group), what="it is rolled back")
    assert half.commit() is HalfOutcome.ROLLED_BACK
    after = shop.send(topic, half_id="after", argument=Verdict.COMMIT, value=b"after")
    assert after is HalfOutcome.COMMITTED
    assert committed(node.bootstrap, topic, 1) == [b"after"]


def test_a_name_that_was_decided_before_is_refused_before_its_local_transaction(
    node, group, topic
) -> None:
    """The coordinator answers what became of the first one: the second would stay open, and time out."""
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    shop.send(topic, half_id="o", argument=Verdict.ROLLBACK, value=b"first")
    for _ in range(2):
        with pytest.raises(HalfMessageIsOver, match="half message o is over: it was rolled back"):
            shop.send(topic, half_id="o", argument=Verdict.COMMIT, value=b"second")
    assert shop.orders == {"o": Verdict.ROLLBACK}
    done = shop.send(topic, half_id="other", argument=Verdict.COMMIT, value=b"third")
    assert done is HalfOutcome.COMMITTED, "and the next one has a lane"
    assert committed(node.bootstrap, topic, 1) == [b"third"]


class LosesAnAnswer(AdminApi):
    """What is asked is done, and the first answer to a prepare never comes back."""

    def __init__(self, admin: AdminApi) -> None:
        super().__init__([f"http://{host}:{port}" for host, port in admin._nodes])
        self.left = 1

    def call(self, method: str, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = super().call(method, path, *args, **options)
        if path.endswith("prepare") and self.left:
            self.left -= 1
            raise AdminUnreachable("no answer")
        return answer


class Careful(Shop):
    """Knows no attempt that surely never comes: it looks until there is one of that name."""

    def check_local_transaction(self, half_id: str) -> Verdict:
        until(lambda: half_id in self.orders, what=f"there is {half_id}")
        return super().check_local_transaction(half_id)


def test_a_name_whose_prepare_got_no_answer_is_read_once_when_it_is_sent_again(
    node, group, topic
) -> None:
    """Its local transaction is found by the name: for both, if the first were still there to be asked about."""
    create(node.bootstrap, topic)
    with Careful(node.bootstrap, group, LosesAnAnswer(node.admin)) as shop:
        with pytest.raises(AdminUnreachable):
            shop.send(topic, half_id="o", argument=Verdict.COMMIT, value=b"o")
        assert shop.orders == {}, "its local transaction was not begun"
        done = shop.send(topic, half_id="o", argument=Verdict.COMMIT, value=b"o")
        assert done is HalfOutcome.COMMITTED
        until(lambda: not halves(node, group), what="none waits for a check")
        shop.send(topic, half_id="last", argument=Verdict.COMMIT, value=b"z")
    assert committed(node.bootstrap, topic, 2) == [b"o", b"z"]


def test_what_nobody_knows_is_parked_for_a_person(node, group, topic) -> None:
    create(node.bootstrap, topic)
    with Shop(node.bootstrap, group, node.admin) as shop:
        for name in ("released", "decided"):
            assert shop.send(topic, half_id=name, argument=Verdict.UNKNOWN, value=name.encode())
        until(lambda: len(halves(node, group, state="parked")) == 2, what="both are parked")
        # A slow machine may be asked once more: a check that nobody confirmed in time does not count.
        assert min(shop.asked.count(name) for name in ("decided", "released")) >= 2
        parked = {each["half_id"]: each for each in halves(node, group)}
        shop.orders["released"] = Verdict.COMMIT
        names = {each: parked[each]["transactional_id"] for each in parked}
        node.admin.call(
            "POST",
            "/v1/checks/release",
            {"transactional_id": names["released"], "half_id": "released"},
        )
        until(lambda: len(halves(node, group)) == 1, what="the released one is committed")
        decide = {
            "transactional_id": names["decided"],
            "half_id": "decided",
            "outcome": "rollback",
            "by": "ada",
        }
        assert node.admin.call("POST", "/v1/checks/decide", decide)["decided_by"] == "ada"
    assert committed(node.bootstrap, topic, 1) == [b"released"]


def test_checks_are_not_burned_while_nobody_is_there_to_be_asked(node, group, topic) -> None:
    create(node.bootstrap, topic)
    Shop(node.bootstrap, group, node.admin).send_half(topic, half_id="o", value=b"o")
    time.sleep(2.0)  # many intervals
    (waiting,) = halves(node, group)
    assert (waiting["state"], waiting["checks"]) == ("waiting", 0)


def test_any_process_may_check_without_producing(node, group, topic) -> None:
    create(node.bootstrap, topic)
    Shop(node.bootstrap, group, node.admin).send_half(topic, half_id="o", value=b"o")
    asked = threading.Event()

    def look_up(half_id: str, transactional_id: str) -> Verdict:
        assert transactional_id.startswith(f"{group}::")
        asked.set()
        return Verdict.COMMIT

    checker = Checker(group, "back office", node.admin, look_up)
    checker.start()
    assert asked.wait(30)
    until(lambda: not halves(node, group), what="it is committed")
    checker.stop()


def test_half_messages_that_are_left_to_checks_leave_no_producers_behind(
    node, group, topic
) -> None:
    """Their lanes are of no use any more: each would keep four threads and eight descriptors."""
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    gc.disable()
    try:
        shop.send(topic, half_id="first", argument=Verdict.UNKNOWN, value=b"o")
        before = len(os.listdir("/proc/self/task"))
        for number in range(4):
            left = shop.send(topic, half_id=f"o{number}", argument=Verdict.UNKNOWN, value=b"o")
            assert left is HalfOutcome.LEFT_TO_CHECKS
        with pytest.raises(ConnectionError):
            shop.send(topic, half_id="raises", argument=ConnectionError("database"), value=b"o")
        until(lambda: len(os.listdir("/proc/self/task")) <= before, what="their threads end")
    finally:
        gc.enable()


def test_half_messages_of_several_threads_do_not_wait_for_each_other(node, group, topic) -> None:
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin, lanes=3)
    open_ones = [shop.send_half(topic, half_id=f"o{n}", value=b"o") for n in range(3)]
    fourth = threading.Thread(
        target=lambda: shop.send_half(topic, half_id="o3", value=b"o").commit()
    )
    fourth.start()
    fourth.join(0.5)
    assert fourth.is_alive(), "there are three lanes"
    open_ones[1].commit()
    fourth.join(30)
    assert not fourth.is_alive()


def test_a_name_that_is_too_long_is_refused_with_what_is_allowed(node, group, topic) -> None:
    create(node.bootstrap, topic)
    shop = Shop(node.bootstrap, group, node.admin)
    with pytest.raises(AdminRefused, match="half_id may have 1000 bytes at most"):
        shop.send_half(topic, half_id="x" * 1_001, value=b"o")
