"""What Kafka 4.3.0 answered about transactions, and what we answer (`txn_answers.py` is the conversation)."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from sim_node import SimNode
from txn_answers import SETTINGS, hold

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_txn_answers.json").read_text())
# Where we answer otherwise, and why.
OTHERWISE: Final[dict[str, tuple[Any, str]]] = {}


def answers_of_ours() -> dict[str, Any]:
    node = SimNode(seed="transactions", **SETTINGS)
    node.start()
    try:
        said = hold(node).said
        assert "client_request_failed" not in node.events
    finally:
        node.close()
    return {label: json.loads(json.dumps(answer)) for label, _, _, answer in said}


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return answers_of_ours()


@pytest.mark.parametrize(
    ("label", "api", "version", "answer"), KAFKA, ids=[f"{row[1]}: {row[0]}" for row in KAFKA]
)
def test_we_answer_as_kafka_did(
    ours: dict[str, Any], label: str, api: str, version: int, answer: Any
) -> None:
    expected = OTHERWISE[label][0] if label in OTHERWISE else answer
    assert ours[label] == expected


def test_the_whole_conversation_was_held(ours: dict[str, Any]) -> None:
    assert [row[0] for row in KAFKA] == list(ours)


def test_where_we_differ_is_where_kafka_was_heard() -> None:
    heard = {row[0]: row[3] for row in KAFKA}
    assert all(heard[label] != answer for label, (answer, _) in OTHERWISE.items())


@pytest.mark.slow
@pytest.mark.needs("kafka")
def test_kafka_still_answers_so() -> None:
    from kafka_node import fresh_kafka

    with fresh_kafka(SETTINGS) as kafka:
        said = json.loads(json.dumps(hold(kafka).said))
    assert said == KAFKA
