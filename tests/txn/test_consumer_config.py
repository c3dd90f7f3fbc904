"""What may be set about consumer groups, in Kafka's words."""

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.txn.groups.consumer_config import ConsumerConfig

KAFKA = ConsumerConfig()


def test_the_defaults_agree_with_each_other() -> None:
    KAFKA.check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"group_consumer_session_timeout_ms": 44_000},
            (
                "group.consumer.session.timeout.ms must be greater than or equal to "
                "group.consumer.min.session.timeout.ms"
            ),
        ),
        (
            {"group_consumer_heartbeat_interval_ms": 16_000},
            (
                "group.consumer.heartbeat.interval.ms must be less than or equal to "
                "group.consumer.max.heartbeat.interval.ms"
            ),
        ),
        (
            {"group_consumer_assignors": ("uniform", "com.example.Best")},
            (
                "Invalid value com.example.Best for configuration group.consumer.assignors: "
                "there are uniform, range"
            ),
        ),
        (
            {"group_consumer_max_assignment_interval_ms": -1},
            (
                "group.consumer.max.assignment.interval.ms must be greater than or equal to "
                "group.consumer.min.assignment.interval.ms"
            ),
        ),
        (
            {
                "group_consumer_max_heartbeat_interval_ms": 60_000,
                "group_consumer_heartbeat_interval_ms": 45_000,
            },
            (
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            ),
        ),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(settings, message) -> None:
    with pytest.raises(ConfigRefused) as refused:
        ConsumerConfig(**settings).check()
    assert str(refused.value) == message


def test_what_was_set_before_the_bounds_moved_is_held_to_them() -> None:
    times = KAFKA.for_group(
        {"consumer.session.timeout.ms": "1", "consumer.assignment.interval.ms": "99999"}
    )
    assert (times.session_timeout_ms, times.assignment_interval_ms) == (45_000, 15_000)
    assert times.heartbeat_interval_ms == 5_000
