"""Orders with an outbox: order and message are one local transaction, and a relay writes the messages later.

python examples/order_service/outbox_service.py --bootstrap 127.0.0.1:9092 --shop /tmp/shop.db order-1 order-2

The relay is exactly once: how far it is stands in a compacted topic, written in the same transaction as the messages. Without
that it would be at least once, which is what most outboxes are.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from brokers import need_a_broker
from confluent_kafka import Producer
from fencepost.clients.binlog.kept_positions import KeptPositions
from shop import Order, Refused, Shop

TOPIC = "orders"
NAME = "order-service-outbox"
POSITIONS = "outbox-positions"
MESSAGES_MAX = 500
CALL_S = 30.0


class OutboxService:
    """Asks no broker: an order is taken while all of them are away."""

    def __init__(self, shop: Shop, on_step: Callable[[str], None] = lambda _: None) -> None:
        self._shop, self._step = shop, on_step

    def place(self, order: Order) -> None:
        with self._shop.transaction() as connection:
            self._shop.insert(connection, order)
            connection.execute(
                "INSERT INTO outbox (key, message) VALUES (?, ?)",
                (order.id, order.message().decode()),
            )
            self._step("before the local commit")
        self._step("after the local commit")


class OlderShop(Exception):
    """Its database has forgotten messages that were relayed."""


class Relay:
    """One at a time: a second one fences the first. How far it is, is noted for each shop's database."""

    def __init__(
        self,
        bootstrap: str,
        shop: Shop,
        *,
        topic: str = TOPIC,
        name: str = NAME,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._shop, self._topic, self._step = shop, topic, on_step
        self._key = f"{name}/{shop.id}"
        client = {"bootstrap.servers": bootstrap}
        self._positions = KeptPositions(client, POSITIONS)
        self._positions.prepare()
        self._producer = Producer({**client, "transactional.id": name})
        self._producer.init_transactions(
            CALL_S
        )  # first: what the last relay left open is decided then
        self._position = int(self._positions.read(self._producer, self._key) or 0)
        last = shop.last_number()
        if self._position > last:
            raise OlderShop(
                f"the messages of this shop were relayed up to number {self._position}, and its database knows of {last}: "
                f"it is an older copy. What it numbers from here on would be taken for relayed. Put the newest copy "
                f"back, or give it an id of its own (UPDATE shop SET id = hex(randomblob(16))): then all of its outbox "
                f"is written."
            )

    def step(self) -> int:
        """How many messages it wrote."""
        found = self._shop.waiting(self._position, MESSAGES_MAX)
        if not found:
            return 0
        self._producer.begin_transaction()
        for _, key, message in found:
            self._producer.produce(self._topic, key=key, value=message)
        last = found[-1][0]
        self._positions.write(self._producer, self._key, str(last))
        self._producer.flush(CALL_S)
        self._step("before the relay's commit")
        self._producer.commit_transaction(CALL_S)
        self._position = last
        self._step("after the relay's commit")
        self._shop.forget(last)
        return len(found)


def main() -> None:
    made = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    made.add_argument("--bootstrap", default="127.0.0.1:9092")
    made.add_argument("--shop", type=Path, default=Path("shop.db"))
    made.add_argument("orders", nargs="*", help="the orders' numbers")
    chosen = made.parse_args()
    shop = Shop(chosen.shop)
    service = OutboxService(shop)
    for each in chosen.orders:
        try:
            service.place(Order(each, "book", 1_250))
        except Refused as refused:
            # As when this is run again; what the last run did not come to is relayed all the same.
            print(refused)
    need_a_broker(
        chosen.bootstrap, without="orders are taken, and their messages wait in the outbox"
    )
    relay = Relay(chosen.bootstrap, shop)
    while relayed := relay.step():
        print(f"{relayed} messages written")


if __name__ == "__main__":
    main()
