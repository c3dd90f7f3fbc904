"""What Kafka 4.3.0 answered about transactions, and what we answer (`txn_answers.py` is the conversation)."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from fencepost.txn.groups.offsets_machine import ASK_AGAIN
from fencepost.txn.transactions.config import TransactionConfig
from sim_node import NODE, SimNode
from txn_answers import SETTINGS, hold

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_txn_answers.json").read_text())
# Where we answer otherwise, and why: the label, and the field with what stands in place of Kafka's.
NAMELESS: Final = (
    "A batch of a transaction without a producer id belongs to no transaction. Kafka writes it, and readers of committed "
    "records get it whatever becomes of the transaction."
)
DECIDED: Final = (
    "What an end that is asked for again is told does not depend on the markers of the first: the decision is written. "
    "Kafka has it asked once more until they are."
)
STORED: Final = (
    "Nobody is to read the offset beside UNSTABLE_OFFSET_COMMIT, but librdkafka does when its assignment has changed "
    "meanwhile: with -1 it begins anew by auto.offset.reset, with this it asks again for what is stored."
)
CODE: Final = "error_code"
OTHERWISE: Final[dict[str, tuple[str, Any, str]]] = {
    "middle: commit again": (CODE, "none", DECIDED),
    "middle: abort what is committed": (CODE, "invalid_txn_state", DECIDED),
    "offsets: fetch the open, stable": ("committed_offset", ASK_AGAIN, STORED),
    **{
        f"strangers: produce, no id, v{version}": (CODE, "invalid_record", NAMELESS)
        for version in (3, 11, 12)
    },
    **{
        f"batches: without a producer, v{version}": (CODE, "invalid_record", NAMELESS)
        for version in (3, 11, 12)
    },
}


def answers_of_ours() -> dict[str, Any]:
    """Whoever asks while markers are being written is told so at once: so long nobody waits who talks to a Kafka."""
    node = SimNode(seed="transactions", **SETTINGS)
    disk = node.world.disk(NODE).faults  # that takes its time, as a real one does
    disk.slow_sync_odds, disk.slow_sync_s = 1.0, (0.003, 0.006)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TransactionConfig.__init__.__kwdefaults__, "wait_ms_max", 0)
        node.start()
    try:
        said = hold(node).said
        assert "client_request_failed" not in node.events
    finally:
        node.close()
    return {label: json.loads(json.dumps(answer)) for label, _, _, answer in said}


def changed(answer: Any, field: str, value: Any) -> Any:
    """The same with something else in that field."""
    if isinstance(answer, dict):
        return {
            name: value if name == field else changed(answer[name], field, value) for name in answer
        }
    return [changed(each, field, value) for each in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return answers_of_ours()


@pytest.mark.parametrize(
    ("label", "api", "version", "answer"), KAFKA, ids=[f"{row[1]}: {row[0]}" for row in KAFKA]
)
def test_we_answer_as_kafka_did(
    ours: dict[str, Any], label: str, api: str, version: int, answer: Any
) -> None:
    if label in OTHERWISE:
        answer = changed(answer, *OTHERWISE[label][:2])
    assert ours[label] == answer


def test_the_whole_conversation_was_held(ours: dict[str, Any]) -> None:
    assert [row[0] for row in KAFKA] == list(ours)


def test_where_we_differ_is_where_kafka_was_heard() -> None:
    heard = {row[0]: row[3] for row in KAFKA}
    assert all(
        heard[label] != changed(heard[label], field, value)
        for label, (field, value, _) in OTHERWISE.items()
    )


@pytest.mark.slow
@pytest.mark.of_kafka
@pytest.mark.needs("kafka")
@pytest.mark.timeout(180)
def test_kafka_still_answers_so() -> None:
    from kafka_node import fresh_kafka

    with fresh_kafka(SETTINGS) as kafka:
        said = json.loads(json.dumps(hold(kafka).said))
    assert said == KAFKA
