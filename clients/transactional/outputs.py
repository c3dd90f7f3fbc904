"""What the loop writes, and which of it no broker takes.

INVARIANT  an output that is refused for what it is ends in `OutputRefused`, after its transaction was aborted.
PREVENTS   a loop that reads, aborts and reads the same message again for ever, with a new producer each time.
PROVED BY  tests/clients/test_transactional_outputs.py::test_an_output_that_no_broker_takes_ends_run_and_not_the_producer

An output is refused at once, by librdkafka, or later, by its broker: then its delivery says so, and the transaction asks
for an abort. Whatever else fails (a broker that is away, a producer that was fenced) may go well the next time.
"""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from .refused_records import (
    UNAUTHORIZED,
    OutputRefused,
    RefusedRecords,
    Words,
    may_pass,
    next_step,
    refused_at_once,
    telling,
)

WORDS: Final = Words(
    "an output",
    "producer_config",
    "have transform give another",
    "run the loop again: its message comes again",
)


class Output:
    """A record to be written: what `Producer.produce` takes."""

    __slots__ = ("fields", "topic")

    def __init__(self, topic: str, **fields: Any) -> None:
        self.topic = topic
        self.fields = fields


class Outputs:
    """Of one transaction. Its deliveries may be told after its end, when there is another one."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        """`client` is the producer's configuration."""
        self._topics: set[str] = set()
        self._refused = RefusedRecords(client, WORDS)

    def produce(self, producer: Producer, output: Output) -> None:
        """Waits while librdkafka's queue is full. OutputRefused, or KafkaException when the producer is of no use."""
        fields = telling(self._refused.delivered, output.fields)
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
                raise self._refused.of(refused_at_once(error, output.topic, fields)) from trouble
            else:
                producer.poll(0)
                return

    def refusal(self, error: KafkaError) -> OutputRefused | None:
        """Asked when `error` has failed the transaction and it is over: what no retry helps against, if that is why."""
        refused = self._refused.refusal()
        if refused is None and error.code() in UNAUTHORIZED:
            return OutputRefused(
                f"a transaction with outputs for {', '.join(sorted(self._topics)) or 'no topic'} was refused: "
                f"{error.name()}: {error.str()}. Nothing of it was committed. {next_step(error, WORDS)}"
            )
        return refused

    def batch_that_fits(self) -> int | None:
        """A smaller batch.size with which no output is refused; None if that does not help."""
        return self._refused.batch_that_fits()
