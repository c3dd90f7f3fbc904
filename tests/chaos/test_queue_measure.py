"""What it takes to judge a long history is measured on one that is like real ones."""

import pytest
from fencepost.chaos.checkers import queue_made, queue_measure, queue_verdict
from fencepost.chaos.checkers.txn_history import from_lines

pytestmark = pytest.mark.slow
OF_WHAT_LACKS = {"lost-write", "int-poll-skip"}  # nobody else had read it, or somebody had


def test_the_history_that_is_measured_is_sound_and_has_what_real_ones_have(
    tmp_path, monkeypatch
) -> None:
    file = tmp_path / "history.jsonl"
    monkeypatch.setattr(queue_made, "WRITES_MAX", 30)
    queue_made.make(file, 4_000, 0)
    short = queue_verdict.judge(file)
    monkeypatch.setattr(queue_verdict, "HELD_BYTES_MAX", 0)
    long = queue_verdict.judge(file)
    assert long.fatal == short.fatal == []
    assert long.counts == short.counts
    for kind in ("fail", "info", "crash", "assign", "ends asked"):
        assert long.counts[kind] > 30, kind
    history = from_lines(file.read_text().splitlines())
    assert sum(bool(op.shown) for op in history) > 30
    assert sum(op.f == "position" for op in history) > 30
    assert len({sent.key for op in history for sent in op.sends}) > queue_made.KEYS


def test_a_long_history_is_judged_in_little_memory_and_what_it_lacks_is_found(tmp_path) -> None:
    found = queue_measure.measure(tmp_path, 20_000, 3, 1 << 30)
    assert found["found"] == 3, found
    assert {"unseen", "torn"} <= set(found["anomalies"]) <= {"unseen", "torn", *OF_WHAT_LACKS}
    assert found["peak_bytes"] < 200 << 20
