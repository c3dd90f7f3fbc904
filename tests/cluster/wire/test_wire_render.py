"""What a handler says, in the words of one version."""

from datetime import timedelta

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import SUPPORTED, ApiKey, response_class
from fencepost.cluster.wire.render import render, render_request

PARTITION = {
    "index": 3,
    "error_code": 7,
    "base_offset": 41,
    "log_append_time": -1,
    "log_start_offset": 5,
    "record_errors": [{"batch_index": 2, "batch_index_error_message": "no key"}],
    "error_message": "one record",
    "current_leader": {"leader_id": 1, "leader_epoch": 2},
}
PRODUCED = {
    "responses": [{"name": "orders", "topic_id": None, "partition_responses": [PARTITION]}],
    "throttle_time_ms": 25,
    "node_endpoints": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
}


def test_each_version_keeps_what_it_has() -> None:
    old = render(ApiKey.produce, 3, PRODUCED)
    [topic] = old.responses
    [partition] = topic.partition_responses
    assert topic.name == "orders"
    assert (partition.index, partition.error_code) == (3, ErrorCode.request_timed_out)
    assert partition.log_append_time == -1
    assert not hasattr(partition, "record_errors")
    assert old.throttle_time == timedelta(milliseconds=25)

    new = render(ApiKey.produce, 13, PRODUCED)
    [partition] = new.responses[0].partition_responses
    assert partition.record_errors[0].batch_index_error_message == "no key"
    assert partition.current_leader.leader_epoch == 2
    assert new.node_endpoints[0].port == 9092
    assert not hasattr(new.responses[0], "name")


def test_a_name_that_no_version_knows_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match=r"produce has throttel_time"):
        render(ApiKey.produce, 9, {"throttel_time": 1})
    with pytest.raises(AssertionError, match=r"responses\.partition_responses\.offset"):
        render(ApiKey.produce, 9, {"responses": [{"partition_responses": [{"offset": 1}]}]})


def test_a_name_that_another_version_knows_is_dropped() -> None:
    assert render(ApiKey.produce, 3, PRODUCED) == render(
        ApiKey.produce, 3, {key: PRODUCED[key] for key in ("responses", "throttle_time_ms")}
    )


def test_what_is_missing_has_the_schemas_default() -> None:
    body = render(ApiKey.produce, 9, {"responses": [{"partition_responses": [{"index": 1}]}]})
    [partition] = body.responses[0].partition_responses
    assert partition.error_code is ErrorCode.none
    assert (partition.log_append_time, partition.log_start_offset) == (-1, -1)
    assert (partition.record_errors, partition.error_message) == ((), None)
    assert body.responses[0].name == ""
    assert body.throttle_time == timedelta(0)


def test_defaults_that_kio_lost_are_kafkas() -> None:
    """Null means all reassignments, and unchanged partitions; an empty list would mean none."""
    assert render_request(ApiKey.list_partition_reassignments, 0, {}).topics is None
    assert render_request(ApiKey.consumer_group_heartbeat, 0, {}).topic_partitions is None


def test_the_same_names_in_another_order_give_the_same_message() -> None:
    assert render(ApiKey.produce, 9, PRODUCED) == render(
        ApiKey.produce, 9, dict(reversed(PRODUCED.items()))
    )


def test_arrays_may_be_null_lists_or_tuples_and_structs_already_rendered() -> None:
    body = render(ApiKey.metadata, 12, {"topics": ({"name": "a"}, {"name": "b"})})
    again = render(ApiKey.metadata, 12, {"topics": list(body.topics)})
    assert again == body
    assert render_request(ApiKey.metadata, 12, {"topics": None}).topics is None


def test_every_version_of_every_message_has_defaults_for_all() -> None:
    for key, (low, high) in SUPPORTED.items():
        for version in (low, high):
            assert isinstance(render(key, version, {}), response_class(key, version))
