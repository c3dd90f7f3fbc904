"""A topic is made though a controller changes while it decides; what somebody else has made is told from it."""

from collections.abc import Mapping
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from fencepost.clients.transactional.kept_topics import make_topic

LEFT_OPEN, THERE = KafkaError.REQUEST_TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS


class Answering:
    """What an admin client is to `make_topic`: an answer a question, None for a topic that was made."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)

    def create_topics(
        self, wanted: list[NewTopic], request_timeout: float
    ) -> Mapping[str, Future[None]]:
        assert request_timeout > 0
        made: Future[None] = Future()
        code = self.answers.pop(0)
        if code is None:
            made.set_result(None)
        else:
            made.set_exception(KafkaException(KafkaError(code)))
        return {wanted[0].topic: made}


@pytest.mark.parametrize(
    ("answers", "is_made"),
    [
        ([None], True),
        ([THERE], False),
        ([LEFT_OPEN, None], True),
        ([LEFT_OPEN, THERE], True),  # it was made, and nobody said so
        ([KafkaError._TRANSPORT, LEFT_OPEN, THERE], True),
    ],
)
def test_what_is_left_open_is_asked_for_again(answers: list[int | None], is_made: bool) -> None:
    admin = Answering(*answers)
    assert make_topic(admin, NewTopic("t", 1, 1)) is is_made
    assert not admin.answers


@pytest.mark.parametrize("code", [KafkaError.INVALID_REPLICATION_FACTOR, LEFT_OPEN])
def test_what_does_not_pass_is_told(code: int) -> None:
    with pytest.raises(KafkaException) as told:
        make_topic(Answering(*[code] * 9), NewTopic("t", 1, 1), within_s=0.5)
    assert told.value.args[0].code() == code
