"""How large a batch of records a topic takes; and of one that was too large, whether a record is, or all that went with it.

INVARIANT  who is told to write smaller records has one that its topic does not take.
PREVENTS   5,000 values of 100 bytes that fail, and an author who is told to make them smaller: they were sent in one batch.
PROVED BY  tests/clients/test_transactional_topic_limits.py::test_whose_fault_a_batch_is_that_was_too_large

A topic's max.message.bytes is compared with what a batch has when it is compressed, librdkafka's batch.size with what it has before
that. So a batch.size that is no larger than the topic's limit is never refused, unless one record is.
"""

import logging
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from .kept_topics import readers

ASK_S: Final = 10.0
AROUND: Final = (
    256  # bytes of a batch that are not its only record's key and value; headers are not known here
)
LIMIT: Final = "max.message.bytes"

log = logging.getLogger("fencepost.clients")


def bytes_max(client: Mapping[str, str], topic: str, *, ask_s: float = ASK_S) -> int | None:
    """Of a batch, as the topic has it now; None if nobody says: no such topic, no right to ask, no answer."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        admin = AdminClient(readers(client))
        asked = admin.describe_configs([resource], request_timeout=ask_s)[resource]
        return int(asked.result(ask_s)[LIMIT].value)
    except (KafkaException, TimeoutError, KeyError) as trouble:
        log.debug("%s: its %s is not known: %s", topic, LIMIT, trouble)
        return None


def is_too_large(error: KafkaError) -> bool:
    """A broker's word, or librdkafka's: the same."""
    return bool(error.code() == KafkaError.MSG_SIZE_TOO_LARGE)


def sizes(key: int, value: int) -> str:
    return f"a key of {key:,} bytes and a value of {value:,}"


def is_of_batch(limit: int | None, batch_size: int, key: int, value: int) -> bool:
    """Whether the record is taken if it is sent in a smaller batch, of `limit` bytes."""
    return limit is not None and batch_size > limit and key + value + AROUND <= limit


def what_to_do(
    topic: str, limit: int | None, batch_size: int, key: int, value: int, said_as: str
) -> str:
    """`key` and `value` are those of the largest record that was refused, `said_as` is the name of batch.size for the user."""
    largest = f"the largest record that was refused has {sizes(key, value)}"
    smaller = f"raise {LIMIT} of the topic, or write smaller records"
    if limit is None:
        return (
            f"{largest}. If {topic} does not take that ({LIMIT}), {smaller}; else it is the batch that it was sent in: say "
            f"{said_as}, which is {batch_size}, no larger than {LIMIT}"
        )
    if is_of_batch(limit, batch_size, key, value):
        return (
            f"{largest}, which {topic} takes: it is the batch that it was sent in. Say {said_as}={limit}, which is its {LIMIT}, "
            f"or less; it is {batch_size} now"
        )
    return f"{largest}, and {topic} takes {limit:,} ({LIMIT}): {smaller}"
