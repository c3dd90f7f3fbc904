"""Whether brokers are there: asked before a client that would wait for them for a minute, and log each of its tries."""

import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ASK_S = 5.0


def need_a_broker(bootstrap: str, *, without: str) -> None:
    """Ends this program with one sentence when nobody answers; `without` says what became of the orders then."""
    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=ASK_S)
    except KafkaException as silent:
        sys.exit(
            f"no broker answers at {bootstrap} ({silent.args[0].str()}): {without}. Start some (`make run`), or name those"
            " that run with --bootstrap HOST:PORT, then do this again."
        )
