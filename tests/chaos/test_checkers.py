"""Every checker sees its anomaly in a history of at most seven operations, and nothing in a good one."""

import io
import sys
from itertools import pairwise

import pytest
from fencepost.chaos.checkers import dead_clients, duplicates, lost_writes, order, verdict
from fencepost.chaos.checkers.history import Operation, from_lines, to_line
from hypothesis import given
from hypothesis import strategies as st


def sent(value: int, offset: int | None = None, kind: str = "ok", process: int = 1) -> Operation:
    return Operation("send", kind, process, "t-0", value, offset)


def read(offset: int, value: int, writer: int = 1, by: str = "final") -> Operation:
    return Operation("read", "ok", by, "t-0", value, offset, writer)


def rules(anomalies) -> list[str]:
    return [anomaly.rule for anomaly in anomalies]


GOOD = [sent(1, 0), sent(2, kind="info"), sent(3, 2), read(0, 1), read(1, 2), read(2, 3)]


@pytest.mark.parametrize("check", verdict.CHECKERS)
def test_no_checker_complains_of_a_good_history(check) -> None:
    assert check(GOOD) == []


def test_an_acknowledged_record_that_nobody_finds_is_lost() -> None:
    history = [sent(1, 0), sent(2, 1), read(0, 1)]
    assert rules(lost_writes.check(history)) == ["lost"]


def test_what_may_or_may_not_have_happened_is_never_lost() -> None:
    history = [sent(1, 0), sent(2, kind="info"), sent(3, kind="fail"), read(0, 1)]
    assert lost_writes.check(history) == []


def test_a_record_elsewhere_than_acknowledged_has_moved() -> None:
    """Offsets are what consumers commit: a record that moves is read twice or never."""
    history = [sent(1, 0), sent(2, 1), read(0, 1), read(2, 2)]
    assert rules(lost_writes.check(history)) == ["moved"]


def test_an_acknowledgement_without_offset_asks_only_that_the_record_is_there() -> None:
    """So Kafka answers a duplicate that is older than the five batches it remembers."""
    assert lost_writes.check([sent(1, None), read(7, 1)]) == []


def test_what_a_reader_saw_may_not_vanish() -> None:
    """Not even a record that was never acknowledged: its reader has acted on it."""
    history = [sent(1, 0), sent(2, kind="info"), read(1, 2, by="early"), read(0, 1)]
    assert rules(lost_writes.check(history)) == ["unread"]


def test_an_offset_that_shows_another_record_later_is_an_anomaly() -> None:
    history = [read(0, 1, by="early"), read(0, 9, writer=2)]
    assert rules(lost_writes.check(history)) == ["unread"]


def test_a_retry_that_was_written_again_is_a_duplicate() -> None:
    history = [sent(1, 0), read(0, 1), read(1, 1)]
    assert rules(duplicates.check(history)) == ["duplicate"]


def test_two_producers_may_send_the_same_value() -> None:
    history = [sent(1, 0), sent(1, 1, process=2), read(0, 1), read(1, 1, writer=2)]
    assert duplicates.check(history) == []


def test_a_record_that_certainly_failed_and_is_there_is_a_phantom() -> None:
    history = [sent(1, kind="fail"), read(0, 1)]
    assert rules(duplicates.check(history)) == ["phantom"]


def test_a_record_in_a_partition_that_nobody_sent_it_to_is_a_phantom() -> None:
    """It is where it belongs, too, so that nothing is lost."""
    stray = Operation("read", "ok", "final", "t-1", 1, 0, 1)
    assert rules(verdict.judge([*GOOD, stray]).anomalies) == ["phantom"]


def test_a_record_that_nobody_sent_is_a_phantom_whoever_read_it() -> None:
    assert rules(verdict.judge([*GOOD, read(3, 4)]).anomalies) == ["phantom"]
    seen = [read(0, 1, writer=7, by="early"), read(0, 1, writer=7, by="later")]
    assert rules(duplicates.check([*GOOD, *seen])) == ["phantom"], "once for its place"


def test_a_batch_that_overtook_another_is_out_of_order() -> None:
    history = [sent(1, 1), sent(2, 0), read(0, 2), read(1, 1)]
    assert rules(order.check(history)) == ["reordered"]


def test_producers_may_interleave() -> None:
    history = [read(0, 1), read(1, 1, writer=2), read(2, 2), read(3, 2, writer=2)]
    assert order.check(history) == []


def test_a_reader_that_goes_back_is_an_anomaly() -> None:
    history = [read(4, 1, by="early"), read(4, 1, by="early")]
    assert rules(order.check(history)) == ["backwards"]


def test_a_reader_that_passes_a_record_by_has_skipped_it() -> None:
    """It is there in the end, so nothing is lost; and who followed along has never seen it."""
    seen = [read(0, 1, by="early"), read(2, 3, by="early")]
    assert rules(verdict.judge([*GOOD, *seen]).anomalies) == ["skipped"]
    assert verdict.judge([*GOOD, seen[0], read(1, 2, by="early"), seen[1]]).valid
    late = [read(1, 2, by="late"), read(2, 3, by="late")]
    assert rules(verdict.judge([*GOOD, *late]).anomalies) == ["skipped"]


def test_what_was_deleted_before_a_reader_came_there_is_not_skipped() -> None:
    told = Operation("start", "ok", "early", "t-0", offset=2)
    history = [sent(1, 0), sent(2, 1), sent(3, 2), read(0, 1, by="early"), told]
    history += [read(2, 3, by="early"), read(0, 1), read(1, 2), read(2, 3)]
    assert verdict.judge(history).valid


def test_holes_between_offsets_are_not_skipped() -> None:
    """Markers of transactions take offsets, and no reader is shown them."""
    history = [sent(1, 0), sent(2, 5), read(0, 1, by="early"), read(5, 2, by="early")]
    assert verdict.judge([*history, read(0, 1), read(5, 2)]).valid


def test_a_producer_that_was_told_to_end_is_an_anomaly() -> None:
    history = [Operation("die", "info", 1, error="OUT_OF_ORDER_SEQUENCE_NUMBER")]
    assert rules(dead_clients.check(history)) == ["dead-client"]


def test_a_verdict_on_nothing_is_not_a_good_one() -> None:
    assert not verdict.judge([]).valid
    assert not verdict.judge([sent(1, 0)]).valid
    assert verdict.judge(GOOD).valid


def test_a_verdict_names_what_is_wrong() -> None:
    judged = verdict.judge([sent(1, 0), sent(2, 1), read(0, 1), read(2, 1)])
    assert not judged.valid
    assert "lost: t-0: value 2 of producer 1 was acknowledged at offset 1" in str(judged)
    assert str(judged).endswith("INVALID")


def test_a_history_survives_being_written_down() -> None:
    history = [*GOOD, sent(4, kind="fail"), Operation("die", "info", 3, error="fatal")]
    assert from_lines(to_line(op) for op in history) == history


@pytest.mark.parametrize(("history", "code"), [(GOOD, 0), (GOOD[:-1], 1)])
def test_the_command_ends_as_it_judged(monkeypatch, capsys, history, code) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(to_line, history))))
    with pytest.raises(SystemExit) as ended:
        verdict.main()
    assert ended.value.code == code
    assert ("INVALID" in capsys.readouterr().out) == (code == 1)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=2), st.data())
def test_any_good_run_is_valid_and_each_way_to_spoil_it_is_seen(script, data) -> None:
    """The log as it should be: every producer counts, and some answers are lost on the way."""
    counters: dict[int, int] = {}
    history, log = [], []
    for offset, (process, answered) in enumerate(script):
        value = counters[process] = counters.get(process, 0) + 1
        kind = "ok" if answered else "info"
        history.append(sent(value, offset if answered else None, kind, process))
        log.append(read(offset, value, process))
    anomalies = verdict.judge(history + log).anomalies
    assert anomalies == ()

    acknowledged = [offset for offset, (_, answered) in enumerate(script) if answered]
    if acknowledged:
        gone = data.draw(st.sampled_from(acknowledged))
        assert verdict.judge(history + log[:gone] + log[gone + 1 :]).anomalies
    again = data.draw(st.sampled_from(log))
    doubled = [*log, read(len(log), again.value, again.writer)]
    assert verdict.judge(history + doubled).anomalies
    for first, second in pairwise(range(len(log))):
        if log[first].writer == log[second].writer:
            swapped = list(log)
            swapped[first] = read(first, log[second].value, log[second].writer)
            swapped[second] = read(second, log[first].value, log[first].writer)
            assert verdict.judge(history + swapped).anomalies
