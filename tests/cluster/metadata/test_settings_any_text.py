"""Values of settings come from clients: any text is taken or refused in words, in time that its length allows."""

import contextlib
import time

import pytest
from fencepost.cluster.base.errors import ConfigRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.broker_config import (
    BROKER_CONFIGS,
    BrokerValues,
    check_broker_configs,
)
from fencepost.cluster.metadata.config_def import ConfigDef, ValueType, parse_value, show_value
from fencepost.cluster.metadata.group_config import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    check_client_metrics_configs,
    check_group_configs,
)
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.topic_config import TOPIC_CONFIGS, check_topic_configs
from hypothesis import given
from hypothesis import strategies as st

ROWS = [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values(), *GROUP_CONFIGS.values()]
texts = st.text(max_size=20) | st.text(" ,:.-+0123456789aeEfFdDnN*()[]{}\\", max_size=12)


def is_refused_or_taken(check, *arguments, **options) -> None:
    with contextlib.suppress(ConfigRefused):
        check(*arguments, **options)


@given(st.sampled_from(ROWS), texts)
def test_any_text_is_taken_or_refused_in_words(row: ConfigDef, text: str) -> None:
    is_refused_or_taken(row.parse, text)


names = st.sampled_from(
    [*TOPIC_CONFIGS, *BROKER_CONFIGS, *GROUP_CONFIGS, *CLIENT_METRICS_CONFIGS, "listener.name.a.b"]
)


@given(st.dictionaries(names | texts, texts, max_size=3))
def test_any_settings_are_taken_or_refused_in_words(overrides: dict[str, str]) -> None:
    is_refused_or_taken(check_topic_configs, overrides)
    is_refused_or_taken(check_client_metrics_configs, overrides)
    is_refused_or_taken(
        check_group_configs, overrides, BrokerValues(ClusterImage(), {}, BrokerId(1))
    )
    for one_broker in (True, False):
        is_refused_or_taken(check_broker_configs, overrides, one_broker=one_broker)


@given(st.sampled_from(ROWS), texts)
def test_what_is_shown_is_read_back_as_the_same_value(row: ConfigDef, text: str) -> None:
    try:
        value = parse_value(row.name, row.type, text)
    except ConfigRefused:
        return
    shown = show_value(value)
    assert shown is not None
    assert show_value(parse_value(row.name, row.type, shown)) == shown


@pytest.mark.parametrize("type_", ValueType)
@pytest.mark.parametrize("part", [" ", "1", "9,", ", ", "1.", "-", "e", "0:1,", "("])
def test_a_long_text_takes_no_longer_than_its_length(type_: ValueType, part: str) -> None:
    """A regular expression that tries again from every blank would take hours for this."""
    text, began = "1" + part * 200_000 + "x", time.process_time()
    is_refused_or_taken(parse_value, "a", type_, text)
    for name in ("match", "metrics", "interval.ms"):
        is_refused_or_taken(check_client_metrics_configs, {name: "client_id=" + text})
    for row in ROWS:
        if row.type is type_ and row.name.endswith((".replicas", ".policy", ".reset", ".ms")):
            is_refused_or_taken(row.parse, text)
    assert time.process_time() - began < 5


def test_a_client_matching_pattern_is_checked_in_time_that_its_length_allows() -> None:
    """Whoever leads the quorum checks it on its loop; 30 of these are one small request, and took it 20 s."""
    patterns = [
        "(?i)" + "[\x00-\uffff]" * 199,
        "[\x00-\uffff\x01]" * 160,
        "(?i)" + "[^\x01-\uffff]" * 160,
    ]
    started = time.process_time()
    for pattern in patterns:
        check_client_metrics_configs({"match": f"client_id={pattern}"})
    assert time.process_time() - started < 0.2
    for wrong in ("(", "[a", "(?P<a", "*", "(?i"):
        with pytest.raises(ConfigRefused, match="Illegal client matching pattern"):
            check_client_metrics_configs({"match": f"client_id={wrong}"})
