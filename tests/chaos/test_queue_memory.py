"""What judges a long history holds little of it, and says the same."""

import contextlib
import random
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from fencepost.chaos.checkers import queue_buckets, torn_transactions
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_buckets import Buckets
from fencepost.chaos.checkers.queue_lines import MANY, Found, Lines
from fencepost.chaos.checkers.queue_places import Stretches
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.stale_reads import KEPT_S, StaleReads
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line


def test_buckets_of_which_few_are_held_give_back_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(queue_buckets, "BUFFERS_MAX", 3)
    monkeypatch.setattr(queue_buckets, "BUFFER_BYTES", 40)
    buckets, plain = Buckets(tmp_path, "some", "<qI"), {}
    rng = random.Random(3)
    for number in range(2_000):
        bucket = rng.randrange(12)
        buckets.add(bucket, number, bucket)
        plain.setdefault(bucket, []).append((number, bucket))
        assert len(buckets._buffers) <= 3
    assert {len(each) for each in buckets._buffers.values()} == {36}, "whole records"
    assert buckets.numbers() == sorted(plain)
    for bucket, records in plain.items():
        assert list(buckets.take(bucket)) == records
    assert list(tmp_path.iterdir()) == []


def written(folder, history):
    file = folder / "history.jsonl"
    file.write_text("".join(f"{to_line(op)}\n" for op in history))
    for number, op in enumerate(history, 1):
        op.line = number
    return file


@pytest.mark.parametrize("sent", [MANY - 1, MANY, MANY + 1, 300])
@pytest.mark.parametrize("lacks", [0, 1, 2])
def test_a_transaction_of_many_records_is_torn_where_one_of_them_lacks(
    tmp_path, sent, lacks
) -> None:
    """Half a byte holds how many a line sends; where it does not, they are counted elsewhere."""
    first = Txn("txn", "ok", "a", 1, [Sent("t0-1", at, at) for at in range(20)])
    second = Txn("txn", "ok", "a", 2, [Sent("t0-0", 100 + at, at) for at in range(sent)])
    final = Txn("read", "ok", FINAL)
    for op in (first, second):
        final.polls += [
            Polled(each.key, each.offset, each.value, op.number) for each in op.sends[lacks:]
        ]
    history = [first, second, final]
    plain = torn_transactions.check(history)
    found, _ = stream(written(tmp_path, history), lambda _: None)
    torn = [each.what for each in found if each.rule == "torn"]
    assert len(torn) == len(plain) == (2 if lacks else 0)
    if lacks:
        assert torn[1] == f"of {sent} values {sent - lacks} are there, not {sent}"


def test_a_line_takes_two_bytes_and_a_key_eight(tmp_path) -> None:
    lines = Lines(tmp_path, 1, Found())
    history = [Txn("txn", "ok", "a", at, [Sent("t0-0", at, at)]) for at in range(1_000)]
    lines.read(written(tmp_path, history), lambda _: None)
    lines.words.close()
    by_line = [each for each in vars(lines).values() if isinstance(each, bytearray)]
    assert [len(each) for each in by_line] == [1_001, 1_001]
    assert lines.ends == array("q", [1_000])
    assert lines.sends_of(7) == 1


def test_stretches_that_come_in_their_order_need_no_sorting() -> None:
    stretches = Stretches()
    for first, last in ((0, 9), (2, 3), (20, 20)):
        stretches.add(first, last)
    assert stretches._is_sorted
    assert stretches.touches(8, 9)
    assert not stretches.touches(10, 20)
    stretches.add(1, 15)
    assert not stretches._is_sorted
    assert stretches.touches(12, 20)
    assert not stretches.touches(16, 20)


def acknowledged(key, offset, at_s):
    return Txn("send", "ok", "a", sends=[Sent(key, 1, offset)], began_s=at_s, ended_s=at_s)


def asked(key, end, at_s):
    return Txn("ends", "ok", "b", positions={key: end}, began_s=at_s, ended_s=at_s)


def test_a_key_of_old_is_one_end_and_still_known_when_it_is_written_to_again() -> None:
    reads = StaleReads()
    for number in range(200):
        at_s = number * KEPT_S / 2
        for at in range(10):
            assert not reads.see(acknowledged(f"t{number}-0", at, at_s + at))
    assert len(reads._known) < 10
    assert len(reads._known) + len(reads._older) == 200
    end_s = 200 * KEPT_S
    assert [each.rule for each in reads.see(asked("t0-0", 9, end_s))] == ["stale-read"]
    assert reads.see(asked("t0-0", 10, end_s)) == []
    reads.see(acknowledged("t0-0", 7, end_s + 1))  # an older one, that was answered again
    assert [each.rule for each in reads.see(asked("t0-0", 9, end_s + 2))] == ["stale-read"]
    reads.see(acknowledged("t0-0", 10, end_s + 3))
    assert reads.see(asked("t0-0", 10, end_s + 3)) == [], "it was asked before"
    assert [each.rule for each in reads.see(asked("t0-0", 10, end_s + 4))] == ["stale-read"]


# -- what it writes on the way ---------------------------------------------------------------------

HOLDS = """
import signal, sys
from pathlib import Path
from fencepost.chaos.checkers.queue_stream import beside
with beside(Path(sys.argv[1])) as made:
    (made / "values").write_text("x")
    print(made, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_what_a_check_that_was_killed_has_left_is_gone_with_the_next_one(tmp_path) -> None:
    """And what belongs to one that goes on, or to somebody else, is not."""
    file = written(tmp_path, [Txn("txn", "ok", "a", 1, [Sent("t0-0", 8, 0)])])
    for name in ("checking-mine", "other.jsonl.checking-theirs"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", HOLDS, str(file)]
    with contextlib.ExitStack() as both:
        killed, lives = (
            both.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))
            for _ in range(2)
        )
        left, held = (Path(each.stdout.readline().strip()) for each in (killed, lives))
        before = {each.name for each in tmp_path.iterdir()}
        assert before >= {left.name, held.name}
        killed.kill()
        killed.wait()
        stream(file, lambda _: None)
        assert {each.name for each in tmp_path.iterdir()} == before - {left.name}
        assert (held / "values").read_text() == "x"
        lives.stdin.close()
        assert lives.wait() == 0
    assert {each.name for each in tmp_path.iterdir()} == before - {left.name, held.name}
