"""Which topics a classic consumer reads, out of the metadata that it sent when it joined.

INVARIANT  whatever a client sent, reading it ends in a list of topics or in None, and harms nobody.
PREVENTS   a group that can't be joined, or a coordinator that can't be loaded, for one member's odd bytes.
PROVED BY  tests/txn/test_classic_group.py::test_any_subscription_bytes_give_topics_or_nothing

The coordinator passes this metadata between members unread. It looks inside only to know which offsets are
still in use, and reads no more than version 0 of the consumer protocol, which every later one begins with.
"""

from ..runtime.codec import Reader, RecordRefused

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a ConsumerProtocolSubscription; None if it is not one."""
    reader = Reader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return [reader.string() for _ in range(reader.length())]
    except RecordRefused:
        return None
