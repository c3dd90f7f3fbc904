"""The table of what a transactional id may become, and what every step keeps."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.transactions.transaction import (
    DECIDED,
    EPOCH_MAX,
    IDLE,
    MAY_BECOME,
    OPEN,
    Phase,
    Transaction,
    check,
    fresh,
)

P = Phase
P0 = TopicPartition("orders", 0)
README = Path(__file__).parents[2] / "txn" / "README.md"


def in_phase(phase: Phase) -> Transaction:
    partitions = () if phase in IDLE else (P0,)
    known = fresh("pay", 7, timeout_ms=1_000, now_ms=5)
    return replace(known, phase=phase, producer_epoch=3, partitions=partitions, start_timestamp=4)


def test_every_phase_has_a_row() -> None:
    assert set(MAY_BECOME) == set(Phase)


def test_nothing_but_its_completion_follows_a_decision() -> None:
    """Markers may already be visible on one partition when something else is asked (KIP-98)."""
    assert MAY_BECOME[P.PREPARE_COMMIT] == {P.COMPLETE_COMMIT}
    assert MAY_BECOME[P.PREPARE_ABORT] == {P.COMPLETE_ABORT}


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("after", Phase)
def test_a_step_that_is_not_in_the_table_is_refused(before: Phase, after: Phase) -> None:
    # The step back to rest keeps no partitions; every other one keeps them.
    step = replace(in_phase(after), previous_producer_id=7)
    start = in_phase(before)
    if before in OPEN and after in IDLE:
        start = replace(start, partitions=())
    if after in MAY_BECOME[before]:
        check(start, step)
    else:
        with pytest.raises(AssertionError, match=f"{before.word} -> {after.word}"):
            check(start, step)


def test_an_epoch_never_goes_back() -> None:
    with pytest.raises(AssertionError, match="an epoch goes back"):
        check(in_phase(P.EMPTY), replace(in_phase(P.ONGOING), producer_epoch=2))


def test_an_open_transaction_loses_no_partition() -> None:
    with pytest.raises(AssertionError, match="forgets partitions"):
        check(in_phase(P.ONGOING), replace(in_phase(P.PREPARE_COMMIT), partitions=()))


def test_a_producer_id_changes_only_at_rest_and_is_remembered() -> None:
    with pytest.raises(AssertionError, match="another producer id"):
        check(in_phase(P.ONGOING), replace(in_phase(P.PREPARE_ABORT), producer_id=8))
    with pytest.raises(AssertionError, match="forgets a producer id"):
        check(
            in_phase(P.COMPLETE_ABORT),
            replace(in_phase(P.EMPTY), producer_id=8, previous_producer_id=6),
        )


@pytest.mark.parametrize("phase", sorted(OPEN))
@pytest.mark.parametrize("epoch", [0, 3, EPOCH_MAX - 1, EPOCH_MAX])
@pytest.mark.parametrize("version", [0, 2])
def test_every_step_of_an_open_transaction_is_one_that_the_table_allows(
    phase: Phase, epoch: int, version: int
) -> None:
    """Also at the end of the epochs: 32765 to 32767 overflowed in Kafka (KAFKA-19367)."""
    start = replace(in_phase(phase), producer_epoch=epoch)
    fenced = start.fenced(9, server_transaction_version=version)
    decided = [
        start.ended(9, commit=commit, client_transaction_version=version, fresh_producer_id=50)
        for commit in (True, False)
    ]
    for step in (fenced, *decided):
        assert step.phase in DECIDED
        check(start, step)
        check(step, step.completed(10))
        assert step.completed(10).identity == step.identity


def test_the_diagram_in_the_readme_is_this_table() -> None:
    """A row for each step, in the order of the phases."""
    text = README.read_text()
    diagram = re.search(r"<!-- transaction phases -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert diagram is not None
    rows = ["stateDiagram-v2", "    [*] --> Empty"]
    for phase in Phase:
        rows += [f"    {phase.word} --> {after.word}" for after in sorted(MAY_BECOME[phase])]
    assert diagram.group(1).splitlines() == rows
