"""What the loop writes, and which of it no broker takes.

INVARIANT  an output that is refused for what it is ends in `OutputRefused`, after its transaction was aborted.
PREVENTS   a loop that reads, aborts and reads the same message again for ever, with a new producer each time.
PROVED BY  tests/clients/test_transactional_outputs.py::test_an_output_that_no_broker_takes_ends_run_and_not_the_producer

An output is refused at once, by librdkafka, or later, by its broker: then its delivery says so, and the transaction asks
for an abort. Whatever else fails (a broker that is away, a producer that was fenced) may go well the next time.
"""

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

# What `produce` raises when it is not the output's fault: the transaction or the producer has failed meanwhile.
OF_THE_PRODUCER: Final = (
    KafkaError._STATE,
    KafkaError._FATAL,
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
UNAUTHORIZED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
NO_TOPIC: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
)
# Of a delivery: the same output is refused the next time as well.
FOR_EVER: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    *UNAUTHORIZED,
    *NO_TOPIC,
)


class Output:
    """A record to be written: what `Producer.produce` takes."""

    __slots__ = ("fields", "topic")

    def __init__(self, topic: str, **fields: Any) -> None:
        self.topic = topic
        self.fields = fields


class OutputRefused(RuntimeError):
    """An output that no broker takes: which one, why, and what to do. Nothing of its transaction was committed."""


class Outputs:
    """Of one transaction. Its deliveries may be told after its end, when there is another one."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._refused: list[str] = []

    def produce(self, producer: Producer, output: Output) -> None:
        """Waits while librdkafka's queue is full. OutputRefused, or KafkaException when the producer is of no use."""
        fields = dict(output.fields)
        theirs = fields.pop("callback", None)  # the same by another name
        theirs = fields.get("on_delivery") or theirs
        fields["on_delivery"] = self._delivered if theirs is None else self._and_tell(theirs)
        self._topics.add(output.topic)
        while True:
            try:
                producer.produce(output.topic, **fields)
            except BufferError:
                producer.poll(0.1)
            except KafkaException as trouble:
                error = trouble.args[0]
                if may_pass(error):
                    raise
                key, value = fields.get("key"), fields.get("value")
                raise OutputRefused(_why(output.topic, key, value, error)) from trouble
            else:
                producer.poll(0)
                return

    def refusal(self, error: KafkaError) -> OutputRefused | None:
        """Asked when `error` has failed the transaction and it is over: what no retry helps against, if that is why."""
        if self._refused:
            return OutputRefused(self._refused[0])
        if error.code() in UNAUTHORIZED:
            return OutputRefused(
                f"a transaction with outputs for {', '.join(sorted(self._topics)) or 'no topic'} was refused: "
                f"{error.name()}: {error.str()}. Nothing of it was committed. {_next_step(error)}"
            )
        return None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and error.code() in FOR_EVER:
            self._refused.append(_why(message.topic(), message.key(), message.value(), error))

    def _and_tell(self, theirs: Callable[[Any, Any], Any]) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            self._delivered(error, message)
            theirs(error, message)

        return delivered


def may_pass(error: KafkaError) -> bool:
    return (
        error.fatal()
        or error.txn_requires_abort()
        or error.retriable()
        or error.code() in OF_THE_PRODUCER
    )


def _why(topic: str, key: Any, value: Any, error: KafkaError) -> str:
    size = len(value.encode() if isinstance(value, str) else value or b"")
    return (
        f"an output for {topic} with the key {key!r} and a value of {size:,} bytes was refused: "
        f"{error.name()}: {error.str()}. Its transaction was aborted. {_next_step(error)}"
    )


def _next_step(error: KafkaError) -> str:
    code = error.code()
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            "Raise message.max.bytes in producer_config and max.message.bytes of the topic, or have transform give "
            "smaller values"
        )
    if code in UNAUTHORIZED:
        return "Grant what is missing, and run the loop again: it goes on where it was"
    if code in NO_TOPIC:
        return "Create the topic or the partition, or have transform give another, and run the loop again"
    return "Have transform give another, and run the loop again: its message comes again"
