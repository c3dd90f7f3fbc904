"""Ends what names of a group left open: each is begun anew, which is Kafka's way of saying so. Few at a time.

A commit that was decided stands: only open transactions are aborted, and their producers fenced.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import Producer

from ..transactional.identity import retrying
from ..transactional.names import SEPARATOR
from .client_settings import sinks_own

AT_ONCE: Final = 8
CALL_S: Final = 5.0
START_S: Final = 30.0


def fence(bootstrap: str, client: Mapping[str, str], group: str, members: Sequence[str]) -> None:
    def one(member: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **sinks_own(client),
                **client,
                "transactional.id": f"{group}{SEPARATOR}{member}",
            }
        )
        retrying(lambda: producer.init_transactions(CALL_S), START_S)

    if members:
        with ThreadPoolExecutor(min(AT_ONCE, len(members))) as pool:
            list(pool.map(one, members))
