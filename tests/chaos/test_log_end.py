"""Where a partition ends, while its leader moves."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from fencepost.chaos.workloads.log_end import log_end


class Moving:
    """A consumer that is told so many times that the leader is another one."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.asked = code, times, 0

    def get_watermark_offsets(self, _place: TopicPartition, _timeout: float) -> tuple[int, int]:
        self.asked += 1
        if self.asked <= self.times:
            raise KafkaException(KafkaError(self.code))
        return 3, 17


PLACE = TopicPartition("t", 0)


def test_who_has_lost_the_lead_is_asked_about_no_more_than_it_takes() -> None:
    moving = Moving(KafkaError.NOT_LEADER_FOR_PARTITION, 2)
    assert log_end(moving, PLACE, 5.0) == 17
    assert moving.asked == 3


def test_what_does_not_end_is_told_when_the_time_is_up() -> None:
    moving = Moving(KafkaError.LEADER_NOT_AVAILABLE, 1_000_000)
    with pytest.raises(KafkaException):
        log_end(moving, PLACE, 0.25)
    assert moving.asked > 1


def test_another_trouble_is_told_at_once() -> None:
    moving = Moving(KafkaError.UNKNOWN_TOPIC_OR_PART, 1)
    with pytest.raises(KafkaException):
        log_end(moving, PLACE, 5.0)
    assert moving.asked == 1
