"""Topics and settings as an administrator changes them. See `test_every_version.py`."""

from typing import Any, Final

from every_api_check import EMPTY, MISSING, TOPIC, UNKNOWN_ID, E, check, codes
from fencepost.cluster.wire.api import ApiKey
from sim_node import Asker

TOPIC_TYPE, BROKER_TYPE, METRICS_TYPE, GROUP_TYPE = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
ONE: Final = {"num_partitions": 1, "replication_factor": 1}
DEFAULTS: Final = {"num_partitions": -1, "replication_factor": -1}


@check(ApiKey.create_topics)
def create_topics(node: Asker, version: int) -> None:
    def ask(*topics: dict[str, Any], validate_only: bool = False) -> Any:
        return node.ask(
            ApiKey.create_topics,
            version,
            timeout=5_000,
            validate_only=validate_only,
            topics=topics,
        ).topics

    def manual(*assignments: tuple[int, list[int]]) -> dict[str, Any]:
        placed = [{"partition_index": index, "broker_ids": ids} for index, ids in assignments]
        return {**DEFAULTS, "assignments": placed}

    def config(name: str, value: str | None) -> dict[str, Any]:
        return {**ONE, "configs": [{"name": name, "value": value}]}

    name = f"created-{version}"
    assert len(ask()) == 0
    assert codes(ask({"name": name, **ONE}, validate_only=True)) == [E.none]
    assert codes(ask({"name": name, **ONE})) == [E.none]
    assert codes(ask({"name": name, **ONE})) == [E.topic_already_exists]
    placed = {"name": f"placed-{version}", **manual((0, [1]), (1, [1]))}
    (answer,) = ask(placed)
    assert answer.error_code is E.none
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (2, 1)
        assert {"retention.ms", "cleanup.policy"} <= {each.name for each in answer.configs}
    if version >= 7:
        assert answer.topic_id is not None
    # The broker's defaults are asked for since version 4 (KIP-464); Kafka gives them in all versions.
    assert codes(ask({"name": f"default-{version}", **DEFAULTS})) == [E.none]
    refused: list[tuple[dict[str, Any], E]] = [
        ({**ONE, "num_partitions": 0}, E.invalid_partitions),
        ({**ONE, "replication_factor": 0}, E.invalid_replication_factor),
        ({**ONE, "replication_factor": 2}, E.invalid_replication_factor),
        (manual((0, [9])), E.invalid_replica_assignment),
        (manual((0, [1, 1])), E.invalid_replica_assignment),
        (manual((1, [1])), E.invalid_replica_assignment),
        (manual((0, [])), E.invalid_replica_assignment),
        ({**manual((0, [1])), "num_partitions": 1}, E.invalid_request),
        (config("no.such.config", "1"), E.invalid_config),
        (config("retention.ms", "soon"), E.invalid_config),
        (config("cleanup.policy", "keep"), E.invalid_config),
        (config("retention.ms", None), E.invalid_config),
    ]
    for number, (fields, error) in enumerate(refused):
        (answer,) = ask({"name": f"refused-{number}", **fields})
        assert answer.error_code is error, (fields, answer)
    for bad in ("", ".", "not a name", "x" * 250):
        assert codes(ask({"name": bad, **ONE})) == [E.invalid_topic_exception], bad
    twice = ask({"name": "twice", **ONE}, {"name": "twice", **ONE})
    assert codes(twice) == [E.invalid_request]


@check(ApiKey.create_partitions)
def create_partitions(node: Asker, version: int) -> None:
    name = f"grown-{version}"
    node.create_topic(name)

    def ask(topic: str, count: int, assignments: Any = None, *, validate_only: bool = False) -> E:
        placed = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
        (answer,) = node.ask(
            ApiKey.create_partitions,
            version,
            timeout=5_000,
            validate_only=validate_only,
            topics=[{"name": topic, "count": count, "assignments": placed}],
        ).results
        error: E = answer.error_code
        return error

    empty = node.ask(ApiKey.create_partitions, version, timeout=0, topics=[], validate_only=False)
    assert len(empty.results) == 0
    assert ask(name, 2, validate_only=True) is E.none
    assert ask(name, 2) is E.none
    assert ask(name, 4, [[1], [1]]) is E.none
    assert ask(name, 4) is E.invalid_partitions
    assert ask(name, 1) is E.invalid_partitions
    assert ask(name, 6, [[1]]) is E.invalid_replica_assignment
    assert ask(name, 5, [[9]]) is E.invalid_replica_assignment
    assert ask(MISSING, 2) is E.unknown_topic_or_partition


@check(ApiKey.delete_topics)
def delete_topics(node: Asker, version: int) -> None:
    key = ApiKey.delete_topics
    names = [f"gone-{version}-{number}" for number in range(2)]
    ids = [node.create_topic(name) for name in names]
    if version < 6:
        assert len(node.ask(key, version, topic_names=[], timeout=0).responses) == 0
        reply = node.ask(key, version, topic_names=[*names, MISSING], timeout=5_000)
        found = {each.name: each.error_code for each in reply.responses}
        assert found == {names[0]: E.none, names[1]: E.none, MISSING: E.unknown_topic_or_partition}
        return
    assert len(node.ask(key, version, topics=[], timeout=0).responses) == 0
    wanted = [
        {"name": names[0], "topic_id": None},
        {"name": None, "topic_id": ids[1]},
        {"name": MISSING, "topic_id": None},
        {"name": None, "topic_id": UNKNOWN_ID},
    ]
    reply = node.ask(key, version, topics=wanted, timeout=5_000)
    answers = {(each.name, each.topic_id): each.error_code for each in reply.responses}
    assert answers[names[0], ids[0]] is E.none
    assert answers[names[1], ids[1]] is E.none
    assert answers[MISSING, None] is E.unknown_topic_or_partition
    assert answers[None, UNKNOWN_ID] is E.unknown_topic_id
    neither = node.ask(key, version, topics=[{"name": None, "topic_id": None}], timeout=5_000)
    assert codes(neither.responses) == [E.invalid_request]


@check(ApiKey.describe_configs)
def describe_configs(node: Asker, version: int) -> None:
    def ask(kind: int, name: str, keys: list[str] | None = None, *, talk: bool = True) -> Any:
        wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        (result,) = node.ask(
            ApiKey.describe_configs,
            version,
            resources=[wanted],
            include_synonyms=talk,
            include_documentation=talk,
        ).results
        return result

    assert len(node.ask(ApiKey.describe_configs, version, resources=[]).results) == 0
    for kind, name, known in (
        (TOPIC_TYPE, TOPIC, "retention.ms"),
        (BROKER_TYPE, "1", "log.retention.ms"),
        (BROKER_TYPE, "", None),
        (GROUP_TYPE, "some group", "consumer.session.timeout.ms"),
    ):
        for talk in (True, False):
            everything = ask(kind, name, talk=talk)
            assert everything.error_code is E.none, (kind, name)
            assert known is None or known in {each.name for each in everything.configs}
    (retention,) = ask(TOPIC_TYPE, TOPIC, ["retention.ms", "no.such.config"]).configs
    assert (retention.name, retention.value) == ("retention.ms", "604800000")
    (talking,) = ask(TOPIC_TYPE, TOPIC, ["compression.type"]).configs
    (silent,) = ask(TOPIC_TYPE, TOPIC, ["compression.type"], talk=False).configs
    assert [each.name for each in talking.synonyms] == ["compression.type"]
    assert len(silent.synonyms) == 0
    if version >= 3:
        assert talking.documentation
        assert silent.documentation is None
    assert len(ask(TOPIC_TYPE, TOPIC, []).configs) > 1  # none named: all of them
    assert ask(TOPIC_TYPE, MISSING).error_code is E.unknown_topic_or_partition
    assert ask(TOPIC_TYPE, "not a name").error_code is E.invalid_topic_exception
    for kind, name in ((BROKER_TYPE, "99"), (BROKER_TYPE, "one"), (0, ""), (99, "x")):
        assert ask(kind, name).error_code is E.invalid_request, (kind, name)


def altered(node: Asker, key: ApiKey, version: int, kind: int, name: str, *configs: Any) -> E:
    (answer,) = node.ask(
        key,
        version,
        validate_only=False,
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
    ).responses
    error: E = answer.error_code
    return error


def expect_retention(node: Asker, topic: str, expected: str) -> None:
    """Kafka answers a change before its own describe knows of it; we don't."""
    wanted = {
        "resource_type": TOPIC_TYPE,
        "resource_name": topic,
        "configuration_keys": ["retention.ms"],
    }
    for _ in range(50):
        (result,) = node.ask(ApiKey.describe_configs, resources=[wanted]).results
        if result.configs[0].value == expected or node.answers_at_once:
            break
        node.sleep(0.05)
    assert result.configs[0].value == expected


@check(ApiKey.alter_configs)
def alter_configs(node: Asker, version: int) -> None:
    key, name = ApiKey.alter_configs, f"altered-{version}"
    node.create_topic(name)
    assert len(node.ask(key, version, resources=[], validate_only=False).responses) == 0
    retention = {"name": "retention.ms", "value": "1000"}
    assert altered(node, key, version, TOPIC_TYPE, name, retention) is E.none
    expect_retention(node, name, "1000")
    assert altered(node, key, version, TOPIC_TYPE, name) is E.none
    expect_retention(node, name, "604800000")
    bad = {"name": "retention.ms", "value": "soon"}
    assert altered(node, key, version, TOPIC_TYPE, name, bad) is E.invalid_config
    assert altered(node, key, version, TOPIC_TYPE, MISSING) is E.unknown_topic_or_partition
    nothing = {"name": "retention.ms", "value": None}
    assert altered(node, key, version, TOPIC_TYPE, name, nothing) is E.invalid_request


@check(ApiKey.incremental_alter_configs)
def incremental_alter_configs(node: Asker, version: int) -> None:
    key, name = ApiKey.incremental_alter_configs, f"changed-{version}"
    node.create_topic(name)
    assert len(node.ask(key, version, resources=[], validate_only=False).responses) == 0

    def ask(config: str, operation: int, value: str | None, kind: int = TOPIC_TYPE) -> E:
        change = {"name": config, "config_operation": operation, "value": value}
        resource = {TOPIC_TYPE: name, BROKER_TYPE: "1", GROUP_TYPE: "some group"}[kind]
        return altered(node, key, version, kind, resource, change)

    assert ask("retention.ms", SET, "1000") is E.none
    expect_retention(node, name, "1000")
    assert ask("retention.ms", DELETE, None) is E.none
    expect_retention(node, name, "604800000")
    assert ask("cleanup.policy", APPEND, "compact") is E.none
    assert ask("cleanup.policy", SUBTRACT, "delete") is E.none
    assert ask("consumer.session.timeout.ms", SET, "50000", GROUP_TYPE) is E.none
    assert ask("consumer.session.timeout.ms", DELETE, None, GROUP_TYPE) is E.none
    assert ask("retention.ms", APPEND, "1") is E.invalid_config
    assert ask("retention.ms", SET, None) is E.invalid_request
    assert ask("no.such.config", SET, "1") is E.invalid_config
    # No such operation: Kafka says UNKNOWN_SERVER_ERROR, which tells nobody what to do.
    assert ask("retention.ms", 9, "1") in (E.invalid_request, E.unknown_server_error)
    missing = {"name": "retention.ms", "config_operation": SET, "value": "1"}
    answer = altered(node, key, version, TOPIC_TYPE, MISSING, missing)
    assert answer is E.unknown_topic_or_partition


@check(ApiKey.list_config_resources)
def list_config_resources(node: Asker, version: int) -> None:
    key = ApiKey.list_config_resources
    everything = node.ask(key, version, resource_types=[])
    assert everything.error_code is E.none
    if version == 0:
        return
    named = {(each.resource_type, each.resource_name) for each in everything.config_resources}
    assert {(TOPIC_TYPE, TOPIC), (TOPIC_TYPE, EMPTY), (BROKER_TYPE, "1")} <= named
    topics = node.ask(key, version, resource_types=[TOPIC_TYPE])
    assert {each.resource_type for each in topics.config_resources} == {TOPIC_TYPE}
    assert node.ask(key, version, resource_types=[99]).error_code is E.unsupported_version


@check(ApiKey.describe_quorum)
def describe_quorum(node: Asker, version: int) -> None:
    def ask(*topics: tuple[str, int]) -> Any:
        asked = [
            {"topic_name": name, "partitions": [{"partition_index": index}]}
            for name, index in topics
        ]
        reply = node.ask(ApiKey.describe_quorum, version, topics=asked)
        assert reply.error_code is E.none
        return [partition for topic in reply.topics for partition in topic.partitions]

    metadata = "__cluster_metadata"
    (partition,) = ask((metadata, 0))
    assert (partition.error_code, partition.leader_id) == (E.none, 1)
    assert 0 < partition.high_watermark <= partition.current_voters[0].log_end_offset
    assert [each.replica_id for each in partition.current_voters] == [1]
    assert partition.leader_epoch > 0
    for wrong in ([(metadata, 1)], [(TOPIC, 0)], [(metadata, 0), (TOPIC, 0)]):
        assert set(codes(ask(*wrong))) == {E.unknown_topic_or_partition}
