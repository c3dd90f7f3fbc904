"""The same requests, the same answers, the same records: our coordinator beside a Kafka 4.3.0.

The fixture is a conversation with a Kafka (assignors range and uniform, assignment interval 0): joins, a
revocation that is acknowledged late, a static member that leaves and returns, a regular expression, fencing. Each
step has the request, Kafka's answer and the records that Kafka wrote for it. Times and the order in which Java
walks its hash maps are the only things that may differ.
"""

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from consumer_world import Coordinator, FakeTopic, decode, request
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_records import (
    CurrentAssigned,
    RegexResolved,
    TargetAssigned,
    TargetEpochReached,
)

GROUP = "transcript2"
FIXTURE = json.loads((Path(__file__).parent / "kafka_4_3_consumer_group.json").read_text())


def _plain(key: bytes, value: bytes | None):
    """The record without what differs for good reasons."""
    record = decode(key, value)
    match record:
        case TargetEpochReached():
            return replace(record, assignment_timestamp=0)
        case RegexResolved():
            return replace(record, version=0, timestamp=0)
        case TargetAssigned():
            return replace(record, partitions=tuple(sorted(record.partitions)))
        case CurrentAssigned():
            by_id = sorted(record.assigned, key=lambda topic: topic.topic_id)
            gone = sorted(record.pending_revocation, key=lambda topic: topic.topic_id)
            return replace(record, assigned=tuple(by_id), pending_revocation=tuple(gone))
    return record


def _sorted_targets(records: list) -> list:
    targets = [record for record in records if isinstance(record, TargetAssigned)]
    ordered = iter(sorted(targets, key=lambda record: record.member_id))
    return [next(ordered) if isinstance(r, TargetAssigned) else r for r in records]


def test_every_answer_and_every_record_is_the_one_that_kafka_gave() -> None:
    config = ConsumerConfig(
        group_consumer_assignment_interval_ms=0, group_consumer_assignors=("range", "uniform")
    )
    coordinator = Coordinator(config)
    for name, (topic_id, count) in FIXTURE["topics"].items():
        coordinator.topics.found[name] = FakeTopic(UUID(topic_id), name, count)
    written = 0
    for step in FIXTURE["steps"]:
        member_id, epoch, fields = step["ask"]
        if "holding" in fields:
            fields["holding"] = {UUID(topic): held for topic, held in fields["holding"].items()}
        reply = coordinator.hear(request(member_id, epoch, group_id=GROUP, **fields))
        # The real conversation took a second a step, and waited eleven for the expression.
        coordinator.sleep(11_000 if "subscribed_topic_regex" in fields else 1_000)
        assignment = reply.get("assignment")
        rows = None if assignment is None else assignment["topic_partitions"]
        answer = [
            reply["error_code"].name,
            reply.get("error_message"),
            reply.get("member_id"),
            reply.get("member_epoch", 0),
            None if rows is None else {str(r["topic_id"]): r["partitions"] for r in rows},
        ]
        assert answer == step["answer"], step["ask"]
        ours = [_plain(key, value) for key, value in coordinator.log[written:]]
        written = len(coordinator.log)
        theirs = [
            _plain(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
            for key, value in step["records"]
        ]
        assert _sorted_targets(ours) == _sorted_targets(theirs), step["ask"]
    assert written == sum(len(step["records"]) for step in FIXTURE["steps"]) == 69
