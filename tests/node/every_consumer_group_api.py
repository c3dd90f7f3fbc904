"""Groups of the new protocol (KIP-848). See `test_every_version.py`."""

from typing import Any

from every_api_check import TOPIC, E, check, codes
from every_group_api import find, synced
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker


def beat(node: Asker, group: str, version: int, member_id: str, epoch: int, **more: Any) -> Any:
    find(node, group)
    fields = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        **more,
    }
    return node.ask(ApiKey.consumer_group_heartbeat, version, **fields)


@check(ApiKey.consumer_group_heartbeat)
def consumer_group_heartbeat(node: Asker, version: int) -> None:
    group, mine = f"new-{version}", "AAAAAAAAAAAAAAAAAAAAAQ"
    first = beat(node, group, version, mine, 0)
    assert (first.error_code, first.member_id) == (E.none, mine)
    assigned = first.assignment.topic_partitions
    assert [(each.topic_id, list(each.partitions)) for each in assigned] == [
        (node.topic_ids[TOPIC], [0, 1])
    ]
    quiet: dict[str, Any] = {
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    again = beat(node, group, version, mine, first.member_epoch, **quiet)
    assert again.error_code is E.none
    assert beat(node, group, version, mine, 99, **quiet).error_code is E.fenced_member_epoch
    stranger = beat(node, group, version, "nobody", 5, **quiet)
    assert stranger.error_code is E.unknown_member_id
    assert beat(node, "", version, mine, 0, group_id="").error_code is E.invalid_request
    wrong = beat(node, f"{group}-2", version, mine, 0, server_assignor="no such")
    assert wrong.error_code is E.unsupported_assignor
    if version >= 1:
        by_regex = beat(
            node,
            f"{group}-regex",
            version,
            mine,
            0,
            subscribed_topic_names=None,
            subscribed_topic_regex="top.*",
        )
        assert by_regex.error_code is E.none
        bad = beat(
            node,
            f"{group}-bad",
            version,
            mine,
            0,
            subscribed_topic_names=None,
            subscribed_topic_regex="to(",
        )
        assert bad.error_code is E.invalid_regular_expression
    left = beat(node, group, version, mine, -1, **quiet)
    assert (left.error_code, left.member_epoch) == (E.none, -1)


@check(ApiKey.consumer_group_describe)
def consumer_group_describe(node: Asker, version: int) -> None:
    group, classic = f"shown-{version}", f"classic-{version}"
    beat(node, group, 1, "AAAAAAAAAAAAAAAAAAAAAg", 0)
    synced(node, classic)

    def ask(*groups: str) -> Any:
        return node.ask(ApiKey.consumer_group_describe, version, group_ids=groups).groups

    assert len(ask()) == 0
    known, wrong, unknown = ask(group, classic, "no group")
    assert (known.error_code, len(known.members)) == (E.none, 1)
    assert known.members[0].subscribed_topic_names == (TOPIC,)
    assert codes((wrong, unknown)) == [E.group_id_not_found, E.group_id_not_found]
