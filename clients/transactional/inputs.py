"""What the loop may not read, or can't: which, and what to do.

INVARIANT  a loop that may not read, or has no position to read from, ends with a sentence, as one that may not write does.
PREVENTS   a loop that reads nothing for ever, healthy to whoever watches its process.
PROVED BY  tests/clients/test_transactional_loop_limits.py::test_a_loop_that_may_not_read_ends_with_what_to_do

A topic that is not there is waited for, with a warning: it may be made after the loop was started.
"""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message

# With `auto.offset.reset` = error: librdkafka says so once, and reads no more of that partition.
NO_POSITION: Final = KafkaError._AUTO_OFFSET_RESET
MAY_NOT: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    NO_POSITION,
)
# As Java's clients do. Without it a bit that flipped on its way, or on a disk, is a record like any other.
CHECKED: Final = {"check.crcs": "true"}
# Records that nobody gets, however often they are asked for. Behind some of them librdkafka goes on as if they had never been.
UNREADABLE: Final = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
    KafkaError.MSG_SIZE_TOO_LARGE,
)
NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


class InputRefused(RuntimeError):
    """What the loop may not read, and what to do."""


class Unread:
    """Where something could not be read. Once may be the network; who is told twice of one place is told so for ever."""

    def __init__(self) -> None:
        self._told: set[tuple[str | None, int | None, int | None]] = set()

    def hears(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() not in UNREADABLE:
            return False
        place = message.topic(), message.partition(), message.offset()
        was_told = place in self._told
        self._told.add(place)
        return was_told


def refusal(error: KafkaError, topics: Sequence[str], group_id: str) -> InputRefused:
    if error.code() == NO_POSITION:
        return InputRefused(
            f"group {group_id} has no position in {', '.join(topics)} that it can read on from, and auto.offset.reset=error: "
            f"{error.str()}. Move it to one that is there (fencepost group seek, or kafka-consumer-groups --reset-offsets), and run "
            "the loop again; what is between them is not read by this group"
        )
    if error.code() in UNREADABLE:
        return InputRefused(
            f"{', '.join(topics)} can't be read on by group {group_id}: {error.name()}: {error.str()}. It is asked for again and again "
            "with the same end: have the record mended, or the group moved behind it (fencepost group seek, or "
            "kafka-consumer-groups --reset-offsets), and run the loop again; what is skipped so is not read by this group"
        )
    return InputRefused(
        f"{', '.join(topics)} may not be read as group {group_id}: {error.name()}: {error.str()}. Grant READ on the topics and "
        "on the group, and run the loop again: it goes on where it was"
    )


def what_is_missing(error: KafkaError) -> str:
    """What to say behind a warning."""
    if error.code() in NOT_THERE:
        return "; the loop waits for it: is the topic there, and is that its name?"
    return ""
