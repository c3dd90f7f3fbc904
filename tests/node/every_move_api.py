"""Moves and elections as an administrator asks for them, on a cluster of one. See `test_every_version.py`."""

from typing import Any

from every_api_check import MISSING, TOPIC, E, check
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker

PREFERRED, UNCLEAN = 0, 1


@check(ApiKey.alter_partition_reassignments)
def alter_partition_reassignments(node: Asker, version: int) -> None:
    def ask(topic: str, index: int, replicas: list[int] | None) -> tuple[E, Any]:
        reply = node.ask(
            ApiKey.alter_partition_reassignments,
            version,
            timeout=10_000,
            topics=[
                {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
            ],
        )
        assert (reply.error_code, reply.error_message) == (E.none, None)
        (answer,) = reply.responses[0].partitions
        assert (reply.responses[0].name, answer.partition_index) == (topic, index)
        return answer.error_code, answer.error_message

    assert ask(TOPIC, 0, [1]) == (E.none, None)
    assert ask(TOPIC, 0, None) == (E.no_reassignment_in_progress, None)
    unknown = E.unknown_topic_or_partition
    assert ask(MISSING, 0, [1]) == (unknown, f"Unable to find a topic named {MISSING}.")
    assert ask(TOPIC, 9, [1]) == (unknown, f"Unable to find partition {TOPIC}:9.")
    for replicas, why in (
        ([], "an empty replica list."),
        ([1, 1], "the broker 1 more than once."),
        ([1, 9], "broker 9, but no such broker is registered."),
    ):
        expected = (
            E.invalid_replica_assignment,
            f"The manual partition assignment includes {why}",
        )
        assert ask(TOPIC, 0, replicas) == expected
    nothing = node.ask(ApiKey.alter_partition_reassignments, version, timeout=10_000, topics=[])
    assert (nothing.error_code, nothing.error_message) == (E.none, "")


@check(ApiKey.list_partition_reassignments)
def list_partition_reassignments(node: Asker, version: int) -> None:
    for topics in (None, [], [{"name": TOPIC, "partition_indexes": [0, 7]}]):
        reply = node.ask(
            ApiKey.list_partition_reassignments, version, timeout=10_000, topics=topics
        )
        assert (reply.error_code, reply.error_message, reply.topics) == (E.none, None, ())


@check(ApiKey.elect_leaders)
def elect_leaders(node: Asker, version: int) -> None:
    def ask(election: int, *wanted: tuple[str, int]) -> Any:
        partitions = [{"topic": topic, "partitions": [index]} for topic, index in wanted]
        fields = {"election_type": election} if version >= 1 else {}
        return node.ask(
            ApiKey.elect_leaders,
            version,
            timeout=10_000,
            topic_partitions=partitions or None,
            **fields,
        )

    def codes(reply: Any) -> list[E]:
        return [
            each.error_code
            for topic in reply.replica_election_results
            for each in topic.partition_result
        ]

    elections = (PREFERRED, UNCLEAN) if version >= 1 else (PREFERRED,)
    for election in elections:
        assert codes(ask(election)) == []
        wanted = ((TOPIC, 0), (MISSING, 0), (TOPIC, 9))
        unknown = E.unknown_topic_or_partition
        assert sorted(codes(ask(election, *wanted))) == [unknown, unknown, E.election_not_needed]
    if version >= 1:
        refused = ask(2, (TOPIC, 0))
        assert (refused.error_code, codes(refused)) == (E.invalid_request, [E.invalid_request])
        (topic,) = refused.replica_election_results
        assert topic.partition_result[0].error_message == "Unknown election type 2"


@check(ApiKey.unregister_broker)
def unregister_broker(node: Asker, version: int) -> None:
    reply = node.ask(ApiKey.unregister_broker, version, broker_id=9)
    why = "Broker ID 9 is not currently registered"
    assert (reply.error_code, reply.error_message) == (E.broker_id_not_registered, why)


@check(ApiKey.add_raft_voter)
def add_raft_voter(node: Asker, version: int) -> None:
    def ask(voter: int, **other: Any) -> tuple[E, Any]:
        fields = {"cluster_id": None, "voter_directory_id": None, "listeners": [], **other}
        if version >= 1:
            fields["ack_when_committed"] = False
        reply = node.ask(ApiKey.add_raft_voter, version, voter_id=voter, timeout=10_000, **fields)
        return reply.error_code, reply.error_message

    door = [{"name": "PEER", "host": "nowhere", "port": 9192}]
    assert ask(1, listeners=door) == (E.duplicate_voter, "Node 1 is a voter already.")
    assert ask(9)[0] is E.invalid_request
    assert ask(-1)[0] is E.invalid_request
    assert ask(1, cluster_id="another")[0] is E.inconsistent_cluster_id


@check(ApiKey.remove_raft_voter)
def remove_raft_voter(node: Asker, version: int) -> None:
    def ask(voter: int, **other: Any) -> tuple[E, Any]:
        fields = {"cluster_id": None, "voter_directory_id": None, **other}
        reply = node.ask(ApiKey.remove_raft_voter, version, voter_id=voter, **fields)
        return reply.error_code, reply.error_message

    assert ask(1) == (E.invalid_request, "Node 1 is the only voter.")
    assert ask(9) == (E.voter_not_found, "Node 9 is no voter.")
    assert ask(-1)[0] is E.invalid_request
    assert ask(1, cluster_id="another")[0] is E.inconsistent_cluster_id


def wait_for_new_groups(node: Asker, *, on: bool) -> None:
    """A broker of Kafka hears of a new version only after its controller has answered whom it was asked by."""
    for _ in range(200):
        beat = node.ask(
            ApiKey.consumer_group_heartbeat,
            group_id="off",
            member_id="someone",
            member_epoch=7,
            rebalance_timeout=1_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        if (beat.error_code is not E.unsupported_version) == on:
            return
        node.sleep(0.05)
    raise AssertionError(
        f"heartbeats of new groups get {beat.error_code!r} after switching them {'on' if on else 'off'}"
    )


@check(ApiKey.update_features)
def update_features(node: Asker, version: int) -> None:
    def ask(*updates: tuple[str, int, int], **fields: Any) -> Any:
        named = "upgrade_type" if version >= 1 else "allow_downgrade"
        return node.ask(
            ApiKey.update_features,
            version,
            timeout=10_000,
            feature_updates=[
                {"feature": name, "max_version_level": level, named: kind}
                for name, level, kind in updates
            ],
            **fields,
        )

    def refused(why: str, *updates: tuple[str, int, int]) -> None:
        reply = ask(*updates)
        said = "The update failed for all features since the following feature had an error: "
        assert (reply.error_code, reply.error_message) == (E.invalid_update_version, said + why)

    up, down = 1, 2
    assert ask().error_code is E.none
    assert ask(("group.version", 1, up)).error_code is E.none
    wrong = "Invalid update version {} for feature {}."
    no_feature = wrong.format(1, "nope") + " Local controller 1 does not support this feature."
    refused(no_feature, ("nope", 1, up))
    refused(no_feature, ("group.version", 1, up), ("nope", 1, up))
    refused(wrong.format(0, "nope") + " Feature nope not found.", ("nope", 0, up))
    only = " Local controller 1 only supports versions 0-1"
    refused(wrong.format(5, "group.version") + only, ("group.version", 5, up))
    below = " A feature version cannot be less than 0."
    refused(wrong.format(-1, "group.version") + below, ("group.version", -1, up))
    downward = (
        " Can't downgrade the version of this feature without setting the upgrade type to either"
        " safe or unsafe downgrade."
    )
    refused(wrong.format(0, "group.version") + downward, ("group.version", 0, up))
    if version >= 1:
        kind = " The controller does not support the given upgrade type."
        refused(wrong.format(1, "group.version") + kind, ("group.version", 1, 7))
        assert ask(("group.version", 0, down), validate_only=True).error_code is E.none
        assert ask(("group.version", 0, down)).error_code is E.none
        newer = " Can't downgrade to a newer version."
        refused(wrong.format(1, "group.version") + newer, ("group.version", 1, down))
        wait_for_new_groups(node, on=False)
        assert ask(("group.version", 1, up)).error_code is E.none
        wait_for_new_groups(node, on=True)
