"""A prepare that comes late, when the next half message of its lane is written, does not prepare that under its name."""

from typing import Any

import pytest
from admin_door import served
from fencepost.clients.transactional import (
    AdminApi,
    AdminRefused,
    HalfMessageProducer,
    HalfOutcome,
    Verdict,
)
from fencepost.clients.transactional.identity import ProducerIdentity
from librdkafka import consumer_of, create, receive, until

PREPARE = "/v1/checks/prepare"
KNOWS_NO_NUMBERS = AdminRefused(
    400, "INVALID_REQUEST", "'half_number' is no field of this request: it may have half_id", ""
)


class Door:
    """Prepares whatever it is asked to; one of an older build knows no numbers. `asked` is what it was asked."""

    def __init__(self, *, older: bool) -> None:
        self.older = older
        self.asked: list[dict[str, Any]] = []

    def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (method, path) == ("POST", PREPARE)
        self.asked.append(body)
        if self.older and "half_number" in body:
            raise KNOWS_NO_NUMBERS
        return {"half_id": body["half_id"], "state": "waiting"}


class Lane:
    transactional_id = "pay::p-1"

    def identity(self, *, fresh: bool = False) -> ProducerIdentity:
        return ProducerIdentity(1, 0)


def prepared(door: Door, *names: str) -> list[int | None]:
    """Which numbers a producer's half messages were prepared with, each after the other."""
    pay = HalfMessageProducer("nowhere:1", "pay", door)  # type: ignore[arg-type]
    for name in names:
        pay._prepare(Lane(), name)  # type: ignore[arg-type]
    return [body.get("half_number") for body in door.asked]


def test_each_half_message_of_a_lane_has_a_higher_number_than_the_one_before() -> None:
    numbers = prepared(Door(older=False), "h1", "h2", "h3")
    assert numbers == sorted(set(numbers))


def test_a_door_of_an_older_build_is_asked_again_without_the_number() -> None:
    door = Door(older=True)
    first, second = prepared(door, "h1")
    assert (first, second) == (1, None)
    assert door.asked[1] == {
        "transactional_id": "pay::p-1",
        "producer_id": 1,
        "producer_epoch": 0,
        "half_id": "h1",
    }


class Noted(AdminApi):
    """Notes what it asks, as a door does that stops there and goes on later."""

    def __init__(self, admin: AdminApi) -> None:
        super().__init__([f"http://{host}:{port}" for host, port in admin._nodes])
        self.held: list[dict[str, Any]] = []

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        if path == PREPARE:
            self.held.append(body)
        return super().call(method, path, body, **options)


class Shop(HalfMessageProducer):
    """Its database is a set of names."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.orders: set[str] = set()

    def execute_local_transaction(self, half_id: str, argument: Any) -> Verdict:
        self.orders.add(half_id)
        return Verdict.COMMIT

    def check_local_transaction(self, half_id: str) -> Verdict:
        return Verdict.COMMIT if half_id in self.orders else Verdict.ROLLBACK


@pytest.mark.slow
def test_a_half_message_whose_producer_died_is_not_committed_by_a_late_prepare_of_another(
    group, topic
) -> None:
    """1. The prepare of h1 stops at a door; by another one it is prepared, and h1 and h2 are committed. 2. h3 is written, and
    its producer dies. 3. The door goes on: h3 was h1 then, which the check found in the database."""
    settings = {"group.initial.rebalance.delay.ms": "0", "transaction.check.interval.ms": "300"}
    with served(settings) as node:
        create(node.bootstrap, topic)
        admin = Noted(node.admin)
        dies = Shop(node.bootstrap, group, admin, config={"transaction.timeout.ms": 10_000})
        for name in ("h1", "h2"):
            assert dies.send(topic, half_id=name, value=name.encode()) is HalfOutcome.COMMITTED
        lane = dies._lanes.get()
        assert lane is not None
        dies._write(lane, topic, "h3", {"value": b"h3"})
        with pytest.raises(AdminRefused, match=r"h1 of .* is over: it is half message number 1"):
            node.admin.call("POST", PREPARE, admin.held[0])
        with Shop(node.bootstrap, group, node.admin) as lives:
            lives.orders = dies.orders
            until(lambda: not node.admin.call("GET", "/v1/checks")["half_messages"], what="none")
            last = lives.send(topic, half_id="last", value=b"last")
            assert last is HalfOutcome.COMMITTED
            with consumer_of(node.bootstrap, group=f"reads-{topic}") as consumer:
                consumer.subscribe([topic])
                assert sorted(each.value() for each in receive(consumer, 3)) == [
                    b"h1",
                    b"h2",
                    b"last",
                ]
