"""A producer whose fatal errors are what they are, whatever librdkafka tells beside them.

INVARIANT  a producer that was fenced raises KafkaException, never SystemError.
PREVENTS   a loop that ends where it should have given way to its successor.
PROVED BY  tests/clients/test_transactional_telling_producer.py::test_who_is_fenced_while_rows_are_told_of_is_told_that

confluent-kafka (2.16) makes a fatal error Python's pending exception and may call back for deliveries before it returns:
in the first C function that such a callback uses Python finds both a result and an exception, and raises SystemError.
What was pending is its cause. About one fenced producer in sixty met it that had many records under way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, Producer


@contextmanager
def as_it_was() -> Iterator[None]:
    try:
        yield
    except SystemError as crossed:
        if isinstance(crossed.__cause__, KafkaException):
            raise crossed.__cause__ from None
        raise


class TellingProducer(Producer):  # type: ignore[misc]  # it has no types
    def poll(self, *arguments: Any, **named: Any) -> Any:
        with as_it_was():
            return super().poll(*arguments, **named)

    def flush(self, *arguments: Any, **named: Any) -> Any:
        with as_it_was():
            return super().flush(*arguments, **named)

    def commit_transaction(self, *arguments: Any, **named: Any) -> Any:
        with as_it_was():
            return super().commit_transaction(*arguments, **named)

    def abort_transaction(self, *arguments: Any, **named: Any) -> Any:
        with as_it_was():
            return super().abort_transaction(*arguments, **named)

    def send_offsets_to_transaction(self, *arguments: Any, **named: Any) -> Any:
        with as_it_was():
            return super().send_offsets_to_transaction(*arguments, **named)
