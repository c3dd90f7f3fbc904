"""A producer that is fenced while deliveries are told of: it hears that it was fenced, and nothing of Python's insides."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.transactional.telling_producer import TellingProducer, as_it_was
from librdkafka import create

PARTITIONS, RECORDS, TIMES = 6, 200, 12


def crossed(cause: Exception) -> None:
    raise SystemError("<method 'offset'> returned a result with an exception set") from cause


def test_what_was_pending_when_a_callback_was_called_is_raised() -> None:
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    with pytest.raises(KafkaException) as told, as_it_was():
        crossed(fenced)
    assert told.value is fenced


def test_any_other_system_error_is_one() -> None:
    with pytest.raises(SystemError), as_it_was():
        crossed(ValueError("of somebody's callback"))


@pytest.mark.slow
def test_who_is_fenced_while_rows_are_told_of_is_told_that(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, PARTITIONS)
    for number in range(TIMES):
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-{number}",
            "linger.ms": 50,
            "log_level": 0,
        }
        first, successor = TellingProducer(settings), TellingProducer(settings)
        first.init_transactions(30)
        first.begin_transaction()
        successor.init_transactions(30)
        for place in range(RECORDS):
            first.produce(
                topic,
                b"late",
                partition=place % PARTITIONS,
                on_delivery=lambda _, message: message.offset(),
            )
        with pytest.raises(KafkaException) as told:
            first.flush(30)
        assert told.value.args[0].fatal()
