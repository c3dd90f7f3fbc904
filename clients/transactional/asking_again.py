"""Brokers that are away for a moment are asked again; what does not pass is raised."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

PAUSE_S: Final = 0.2
# Beside what librdkafka says may be tried again.
PASSING: Final = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


# Nobody answered, and librdkafka does not say who was asked.
SILENT: Final = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)


def who_was_asked(error: KafkaError, servers: str, said_as: str) -> str:
    """What there is to say behind an error that names nobody; nothing behind others."""
    if error.code() not in SILENT:
        return ""
    return (
        f": no broker answered in time; {servers} ({said_as}) is who is asked first. Do they run, and does this machine reach "
        "what their advertised.listeners name?"
    )


def retrying_for(seconds: float, call: Callable[[], Any], *, also: Sequence[int] = ()) -> Any:
    """`also` are codes that pass for this caller, who has just made what is not known yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as trouble:
            if trouble.args[0].code() not in also or time.monotonic() > deadline:
                raise_unless_passing(trouble, deadline)
            time.sleep(PAUSE_S)


def raise_unless_passing(trouble: KafkaException, deadline: float) -> None:
    error = trouble.args[0]
    passes = error.retriable() or error.code() in PASSING
    if not passes or time.monotonic() > deadline:
        raise trouble
