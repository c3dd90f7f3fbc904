"""Kafka's own command-line tools: what an operator types, and what it prints."""

import json
import re
from collections.abc import Callable

import pytest
from brokers import COPIES, calm
from kafka_tools import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(300)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCE = "org.apache.kafka.tools.ConsoleProducer"
CONSUME = "org.apache.kafka.tools.consumer.ConsoleConsumer"
# What Kafka's tools name as usable between them and a broker that is not a controller's listener.
NEEDED = frozenset(
    [
        "Produce",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "FindCoordinator",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "DescribeGroups",
        "ListGroups",
        "ApiVersions",
        "CreateTopics",
        "DeleteTopics",
        "DeleteRecords",
        "InitProducerId",
        "OffsetForLeaderEpoch",
        "DescribeConfigs",
        "AlterConfigs",
        "DescribeLogDirs",
        "CreatePartitions",
        "DeleteGroups",
        "IncrementalAlterConfigs",
        "OffsetDelete",
        "DescribeCluster",
        "DescribeProducers",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "DescribeTopicPartitions",
    ]
)

Tool = Callable[..., str]


@pytest.fixture
def tool(bootstrap: str) -> Tool:
    def run(name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        where = ("--bootstrap-server", bootstrap)
        return run_tool(name, *arguments, *where, stdin=stdin, code=code)

    return run


def write(tool: Tool, topic: str, lines: int) -> None:
    text = "".join(f"key{n}:value{n}\n" for n in range(lines))
    options = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool(PRODUCE, "--topic", topic, *options, stdin=text)


@calm
def test_kafka_topics_makes_grows_shows_and_deletes(tool, topic) -> None:
    made = tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    assert f"Created topic {topic}." in made
    again = tool(TOPICS, "--create", "--topic", topic, code=1)
    assert f"Topic '{topic}' already exists." in again
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    shown = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in shown
    row = re.search(r"Partition: 2\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)\s", shown)
    assert row is not None, shown
    leader, replicas, isr = row[1], row[2].split(","), row[3].split(",")
    assert leader == replicas[0] and len(replicas) == COPIES and sorted(isr) == sorted(replicas)
    assert topic in tool(TOPICS, "--list").split()
    tool(TOPICS, "--delete", "--topic", topic)
    assert "does not exist as expected" in tool(TOPICS, "--describe", "--topic", topic, code=1)


def test_console_producer_and_consumer_pass_lines(tool, topic, group) -> None:
    write(tool, topic, 5)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    limits = ("--from-beginning", "--max-messages", "5", "--timeout-ms", "20000")
    printed = tool(CONSUME, "--topic", topic, "--group", group, *limits, *shown)
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("Offset")]
    assert lines == [[f"Offset:{n}", f"key{n}", f"value{n}"] for n in range(5)]
    assert "Processed a total of 5 messages" in printed


def test_kafka_configs_alters_and_shows(tool, topic) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(TOPICS, "--create", "--topic", topic)
    tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=7000,cleanup.policy=[compact]")
    shown = tool(CONFIGS, "--describe", *entity)
    assert "retention.ms=7000" in shown
    assert "cleanup.policy=compact" in shown
    tool(CONFIGS, "--alter", *entity, "--delete-config", "retention.ms")
    everything = tool(CONFIGS, "--describe", *entity, "--all")
    assert "retention.ms=604800000" in everything
    bad = tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=soon", code=1)
    assert "retention.ms" in bad
    assert "InvalidConfigurationException" in bad


def test_kafka_consumer_groups_shows_lag_and_resets(tool, topic, group) -> None:
    write(tool, topic, 8)
    limits = ("--from-beginning", "--max-messages", "6", "--timeout-ms", "20000")
    tool(CONSUME, "--topic", topic, "--group", group, *limits)
    shown = tool(GROUPS, "--describe", "--group", group)
    assert "has no active members" in shown
    row = next(line.split() for line in shown.splitlines() if line.startswith(group))
    assert row[1:3] == [topic, "0"]
    assert row[-6:-3] == ["6", "8", "2"], "offset, end, lag"
    assert re.search(
        rf"{re.escape(group)}\s.*\sEmpty\s", tool(GROUPS, "--describe", "--state", "--group", group)
    )
    assert group in tool(GROUPS, "--list").split()
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    assert re.search(rf"{re.escape(topic)}\s+0\s+0", tool(GROUPS, "--group", group, *reset))
    tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    deleted = tool(GROUPS, "--delete", "--group", group)
    assert "was successful" in deleted


def test_offsets_log_dirs_and_deleted_records_agree(tool, topic, tmp_path) -> None:
    write(tool, topic, 10)
    assert f"{topic}:0:10" in tool(GET_OFFSETS, "--topic", topic, "--time", "latest")
    offsets = tmp_path / "offsets.json"
    wish = {"topic": topic, "partition": 0, "offset": 4}
    offsets.write_text(json.dumps({"version": 1, "partitions": [wish]}))
    deleted = tool(
        "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(offsets)
    )
    assert re.search(rf"partition: {re.escape(topic)}-0\s+low_watermark: 4", deleted)
    assert f"{topic}:0:4" in tool(GET_OFFSETS, "--topic", topic, "--time", "earliest")
    log_dirs = "org.apache.kafka.tools.LogDirsCommand"
    shown = tool(log_dirs, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in shown
    assert '"error":null' in shown


def test_the_tools_for_a_cluster_find_one(tool) -> None:
    versions = tool("org.apache.kafka.tools.BrokerApiVersionsCommand")
    usable = set(re.findall(r"(\w+)\(\d+\): .*\[usable: \d+\]", versions))
    assert usable >= NEEDED, f"not usable: {sorted(NEEDED - usable)}"
    assert "Cluster ID: " in tool("org.apache.kafka.tools.ClusterTool", "cluster-id")


def test_the_performance_tools_run_to_their_end(tool, topic) -> None:
    load = ("--num-records", "20000", "--record-size", "500", "--throughput", "-1")
    printed = tool("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, *load)
    assert "20000 records sent" in printed
    printed = tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", topic, "--num-records", "20000"
    )
    assert "20000" in printed
