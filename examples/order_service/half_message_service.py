"""Orders with half messages: the message is written first, hidden, and shown when the order is committed.

python examples/order_service/half_message_service.py --bootstrap 127.0.0.1:9092 --shop /tmp/shop.db order-1 order-2
"""

import argparse
import secrets
from collections.abc import Callable
from pathlib import Path

from brokers import need_a_broker
from fencepost.clients.transactional import (
    AdminApi,
    HalfMessageProducer,
    HalfOutcome,
    Verdict,
)
from shop import Order, Refused, Shop

TOPIC = "orders"
GROUP = "order-service"


class OrderService(HalfMessageProducer):
    def __init__(
        self,
        bootstrap: str,
        admin: AdminApi,
        shop: Shop,
        *,
        topic: str = TOPIC,
        group: str = GROUP,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_step` is told where it is, for those who watch. Who is asked what became of an attempt must have the database
        that it was made in: each shop's has a group of its own."""
        super().__init__(bootstrap, f"{group}-{shop.id}", admin)
        self._shop, self._topic, self._step = shop, topic, on_step

    def place(self, order: Order) -> HalfOutcome:
        """An order that is placed again is another attempt: what became of one is no answer for the other."""
        self._step("before the half message")
        attempt = f"{order.id}/{secrets.token_hex(8)}"
        return self.send(
            self._topic, half_id=attempt, argument=order, key=order.id, value=order.message()
        )

    def execute_local_transaction(self, half_id: str, argument: Order) -> Verdict:
        self._step("before the local commit")
        try:
            with self._shop.transaction() as connection:
                self._shop.insert(connection, argument, attempt=half_id)
        except Refused:
            return Verdict.ROLLBACK
        self._step("after the local commit")
        return Verdict.COMMIT

    def check_local_transaction(self, half_id: str) -> Verdict:
        """Asked of any process of the group. An order that isn't there may still be on its way: `settle` gives the
        attempt up, so that from then on it can't come any more, and only then is it rolled back."""
        self._step("asked")
        return Verdict.COMMIT if self._shop.settle(half_id) else Verdict.ROLLBACK


def main() -> None:
    made = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    made.add_argument("--bootstrap", default="127.0.0.1:9092")
    made.add_argument("--shop", type=Path, default=Path("shop.db"))
    made.add_argument("orders", nargs="+", help="the orders' numbers")
    chosen = made.parse_args()
    need_a_broker(chosen.bootstrap, without="no order is placed")
    admin = AdminApi.of_dev(chosen.bootstrap)
    with OrderService(chosen.bootstrap, admin, Shop(chosen.shop)) as service:
        for each in chosen.orders:
            print(each, service.place(Order(each, "book", 1_250)).value)


if __name__ == "__main__":
    main()
