"""One conversation about transactions, held with Kafka and with us: above all what goes wrong.

    PYTHONPATH=tests python tests/node/txn_answers.py > tests/node/kafka_4_3_txn_answers.json

holds it with a fresh Kafka of one node and writes down what it answered. `test_txn_answers.py` holds it with ours,
and on demand again with a Kafka.
"""

import json
from collections.abc import Callable
from typing import Final

from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker
from txn_about_data import about_a_group_that_moved_on, about_batches, about_offsets
from txn_about_ends import about_lists, about_markers, about_the_middle_of_an_end, about_timeouts
from txn_about_producers import (
    about_beginning,
    about_fencing,
    about_new_clients,
    about_nobody,
    about_order,
    about_strangers,
)
from txn_talk import TIMEOUT_MS, TOPIC, E, Talk

GROUP_KIND, TRANSACTION_KIND = 0, 1
# Everything in one partition: it is loaded when the first of its ids is. Timeouts are looked for often.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def hold(node: Asker) -> Talk:
    prepare(node)
    talk = Talk(node)
    for chapter in CHAPTERS:
        chapter(talk)
    return talk


def prepare(node: Asker) -> None:
    """A topic of two partitions, and both coordinators at work."""
    node.create_topic(TOPIC, 2)
    talk = Talk(node)
    asked = {"transactional_id": "warm", "transaction_timeout": TIMEOUT_MS}
    talk.until(lambda: _found(node, TRANSACTION_KIND))
    talk.until(lambda: node.ask(ApiKey.init_producer_id, 4, **asked).error_code is E.none)
    talk.until(lambda: _found(node, GROUP_KIND))
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    talk.until(lambda: node.ask(ApiKey.heartbeat, **beat).error_code is E.unknown_member_id)


def _found(node: Asker, kind: int) -> bool:
    reply = node.ask(ApiKey.find_coordinator, 3, key="warm", key_type=kind)
    return reply.error_code is E.none


CHAPTERS: Final[tuple[Callable[[Talk], None], ...]] = (
    about_nobody,
    about_beginning,
    about_order,
    about_strangers,
    about_fencing,
    about_new_clients,
    about_batches,
    about_offsets,
    about_a_group_that_moved_on,
    about_the_middle_of_an_end,
    about_timeouts,
    about_lists,
    about_markers,
)


def main() -> None:
    from kafka_node import fresh_kafka

    with fresh_kafka(SETTINGS) as kafka:
        rows = [json.dumps(row) for row in hold(kafka).said]
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
