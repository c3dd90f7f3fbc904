"""The judge of the transaction log against the partitions' logs sees each way in which they can disagree."""

from fencepost.chaos.checkers.decisions import Decisions
from fencepost.chaos.checkers.observations import Decided, Ended, Marked, Refused
from fencepost.chaos.sim.transaction_watch import decoded
from fencepost.cluster.wire.records import Record

P = ("t-0", "t-1")


def decided(state, epoch=4, partitions=P, producer_id=9) -> Decided:
    return Decided("pay", producer_id, epoch, state, partitions)


def marked(partition="t-0", epoch=4, *, commit=True, ends=True, offset=7) -> Marked:
    return Marked(1, partition, offset, 9, epoch, commit, ends)


def rules(*seen, gone=None) -> list[str]:
    decisions = Decisions()
    found = [each.rule for one in seen for each in decisions.see(one)]
    if gone is not None:
        found += [each.rule for each in decisions.unfinished(gone=gone)]
    return found


GOOD = [
    decided("Ongoing"),
    decided("PrepareCommit"),
    marked("t-0"),
    marked("t-1"),
    decided("CompleteCommit", partitions=()),
]


def test_a_transaction_that_is_decided_marked_and_complete_is_well() -> None:
    assert rules(*GOOD, gone=()) == []
    again = [*GOOD[:3], marked("t-0", ends=False, offset=8), *GOOD[3:]]
    assert rules(*again, gone=()) == [], "a new coordinator sends them again"


def test_a_marker_that_nobody_decided_is_seen() -> None:
    assert rules(decided("Ongoing"), marked()) == ["marker-undecided"]
    assert rules(decided("PrepareAbort"), marked(commit=True)) == ["marker-undecided"]
    assert rules(decided("PrepareCommit"), marked(epoch=5)) == ["marker-undecided"]


def test_a_late_marker_that_ends_the_next_transaction_is_seen() -> None:
    """The same epoch, as the old protocol has it: only the log's state tells the two apart."""
    late = [*GOOD, decided("Ongoing"), marked(offset=12)]
    assert rules(*late) == ["marker-late"]
    assert rules(*GOOD, decided("Ongoing"), marked(ends=False, offset=12)) == []


def test_a_topic_that_was_deleted_owes_no_marker_and_the_next_of_its_name_does() -> None:
    decisions = Decisions()
    for seen in GOOD[:3]:  # t-1 is not marked
        assert decisions.see(seen) == []
    decisions.gone("t-1")
    decisions.see(GOOD[4])
    assert decisions.unfinished() == []
    again = [decided("Ongoing"), decided("PrepareCommit"), marked("t-0"), GOOD[4]]
    assert [each.rule for seen in again for each in decisions.see(seen)] == []
    assert [each.rule for each in decisions.unfinished()] == ["marker-missing"]


def test_a_marker_in_a_partition_that_is_not_in_the_decision_is_seen() -> None:
    assert rules(decided("PrepareCommit"), marked("t-2")) == ["marker-elsewhere"]


def test_a_decision_that_is_changed_is_seen() -> None:
    assert rules(decided("PrepareCommit"), decided("PrepareAbort")) == ["decision-changed"]
    assert rules(decided("PrepareCommit"), decided("Ongoing")) == ["decision-changed"]
    assert rules(decided("PrepareCommit"), decided("PrepareCommit")) == [], "logged again"


def test_what_is_complete_and_was_never_decided_is_seen() -> None:
    """Nobody has a marker to miss: of what was not decided none is due."""
    for end in ("CompleteCommit", "CompleteAbort"):
        assert rules(decided("Ongoing"), decided(end, partitions=()), gone=()) == [
            "decision-changed"
        ]
    assert rules(decided("PrepareAbort"), decided("CompleteCommit")) == ["decision-changed"]
    assert rules(decided("PrepareAbort"), decided("CompleteAbort", 0, (), 10)) == []
    assert rules(*GOOD, GOOD[-1], gone=()) == [], "logged again"


def test_an_epoch_that_goes_back_is_seen() -> None:
    assert rules(decided("Ongoing", 4), decided("Ongoing", 3)) == ["epoch-back"]
    assert rules(decided("Ongoing", 4), decided("Empty", 0, producer_id=10)) == []


def test_a_decision_without_its_marker_is_seen_in_the_end() -> None:
    assert rules(*GOOD[:3], GOOD[4], gone=()) == ["marker-missing"]
    assert rules(*GOOD[:3], GOOD[4], gone=("t",)) == []
    assert rules(*GOOD[:4], gone=()) == ["unfinished"]


def test_a_marker_that_is_written_twice_is_not_that_of_the_next_transaction() -> None:
    """The old protocol: the epoch stays, and both are commits."""
    twice = [*GOOD[:4], marked("t-0", ends=False, offset=9), GOOD[4]]
    rest = [decided("Ongoing"), decided("PrepareCommit"), marked("t-1", offset=12)]
    assert rules(*twice, *rest, GOOD[4], gone=()) == ["marker-missing"]
    assert rules(*twice, *rest, marked("t-0", offset=14), GOOD[4], gone=()) == []
    left_out = [*GOOD[:3], GOOD[4]]
    assert rules(*left_out, *GOOD, gone=()) == ["marker-missing"], "nor the next one's its own"


def test_records_of_both_versions_are_read() -> None:
    """As Kafka's TransactionLogValue.json has them; the second with a tag that is passed by."""
    key = b"\0\0\0\3pay"
    head = (9).to_bytes(8) + (4).to_bytes(2) + (60_000).to_bytes(4) + b"\2"
    times = (1).to_bytes(8) + (1).to_bytes(8)
    old = b"\0\0" + head + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + times
    new = (
        b"\0\1" + head + b"\2" + b"\2t" + b"\3" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0" + times
        + b"\1\2\2\0\2"
    )  # fmt: skip
    for value in (old, new):
        assert decoded(Record(0, 0, key, value)) == decided("PrepareCommit")
    assert decoded(Record(0, 0, key, None)) is None
    assert decoded(Record(0, 0, b"\3\xe8\0\1g", b"\0")) is None, "Kafka skips it, too"


def refusals(*seen, error="producer_fenced", epoch=4) -> list[str]:
    decisions = Decisions()
    for one in seen:
        decisions.see(one)
    return [each.rule for each in decisions.refused(Refused("pay", 9, epoch, error))]


def test_a_producer_that_nothing_fenced_and_that_is_fenced_all_the_same_is_seen() -> None:
    assert refusals(decided("Ongoing")) == ["refused"]
    assert refusals(*GOOD, error="invalid_producer_id_mapping") == ["refused"]
    assert refusals(decided("PrepareAbort", epoch=5)) == [], (
        "its time was up, or another has its id"
    )
    assert refusals(decided("Empty", producer_id=10)) == []


def test_a_commit_of_what_is_open_in_the_log_that_is_refused_is_seen() -> None:
    """A coordinator that was deposed knows nothing of a transaction that its successor opened."""
    state = "invalid_txn_state"
    assert refusals(decided("Ongoing"), error=state) == ["refused"]
    assert refusals(*GOOD, error=state) == []
    assert refusals(decided("Ongoing", epoch=5), error=state) == []


def test_a_commit_of_what_a_partition_has_taken_that_is_refused_is_seen() -> None:
    """Whoever else ends a transaction takes another epoch: in this one it is open, or the partition asked nobody."""
    seen = Refused("pay", 9, 4, "invalid_txn_state", has_written=True)
    for newest, found in ((decided("Empty"), ["refused"]), (decided("PrepareAbort", 5), [])):
        decisions = Decisions()
        decisions.see(newest)
        assert [each.rule for each in decisions.refused(seen)] == found


def ends(*seen, commit=True, epoch=4) -> list[str]:
    decisions = Decisions()
    for one in seen:
        decisions.see(one)
    return [each.rule for each in decisions.ended(Ended("pay", 9, epoch, commit))]


def test_a_producer_that_is_told_of_an_end_that_nobody_has_written_is_seen() -> None:
    """A coordinator that was deposed takes the commit for the last one's, sent again: its successor has opened another."""
    assert ends(*GOOD, decided("Ongoing")) == ["unwritten-end"]
    assert ends(decided("PrepareAbort")) == ["unwritten-end"]
    assert ends(decided("PrepareCommit"), commit=False) == ["unwritten-end"]
    assert ends(*GOOD) == []
    assert ends(decided("PrepareCommit", epoch=5)) == [], "its end has the next epoch (KIP-890)"
    assert ends(decided("Ongoing", epoch=5)) == [], "another has its id"
    assert ends() == []


def test_an_id_that_is_in_use_is_not_forgotten_and_one_that_was_explains_every_refusal() -> None:
    decisions = Decisions()
    decisions.see(decided("Ongoing"))
    assert [each.rule for each in decisions.forget("pay")] == ["forgotten"]
    assert decisions.forget("pay") == []
    assert not decisions.refused(Refused("pay", 9, 4, "invalid_producer_id_mapping"))
