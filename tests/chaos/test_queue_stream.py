"""What judges a long history says of short ones what the plain checkers say."""

import random

import pytest
from fencepost.chaos.checkers import (
    aborted_reads,
    consumed,
    cycles,
    polls,
    queue_lines,
    queue_measure,
    torn_transactions,
    txn_log,
    txn_lost,
)
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_buckets import BUFFER_BYTES, Buckets
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line

PLAIN = (aborted_reads, consumed, cycles, polls, torn_transactions, txn_log, txn_lost)
# Told apart by the plain checkers through places that a long history's judge takes from acknowledgements alone.
OF_SENDS = {"nonmonotonic-send", "int-nonmonotonic-send", "key-order"}

OF_WHAT_LACKS = {"lost-write", "int-poll-skip"}  # nobody else had read it, or somebody had


def written(folder, history):
    file = folder / "history.jsonl"
    file.write_text("".join(f"{to_line(op)}\n" for op in history))
    for number, op in enumerate(history, 1):
        op.line = number
    return file


def rules(anomalies):
    """Which edges a cycle needs may depend on who is not on it: one name for all."""
    return {"G1c" if each.rule.startswith("G1c") else each.rule for each in anomalies}


def test_buckets_give_back_what_was_added_in_its_order(tmp_path) -> None:
    buckets = Buckets(tmp_path, "some", "<qI")
    many = BUFFER_BYTES // 12 + 5
    for number in range(many):
        buckets.add(number % 2 * 7, number, 1)
    assert buckets.numbers() == [0, 7]
    assert list(buckets.read(7)) == [(number, 1) for number in range(1, many, 2)]
    assert len(list(buckets.take(0))) == (many + 1) // 2
    assert list(buckets.take(0)) == []
    assert buckets.numbers() == [7]


class Chance:
    """A history of a few transactions on two keys; what goes wrong in it goes wrong by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs: dict[str, list[tuple[int, int, int]]] = {"t0-0": [], "t0-1": []}
        self.history: list[Txn] = []
        self.value = 0
        self.free_s: dict[str, float] = {}
        self.at: dict[tuple[str, str], int] = {}

    def make(self) -> list[Txn]:
        for number in range(1, self.rng.randint(3, 14)):
            self._one(number)
        self._spoil()
        final = Txn("read", "ok", FINAL, began_s=900.0, ended_s=901.0)
        for key, log in self.logs.items():
            final.polls += [Polled(key, *each) for each in log]
        if self.rng.random() < 0.8:
            self.history.append(final)
        return self.history

    def _one(self, number: int) -> None:
        rng = self.rng
        process = rng.choice("abc")
        op = Txn("txn", rng.choice(("ok", "ok", "ok", "info", "fail")), process, number)
        op.began_s = max(number + rng.random(), self.free_s.get(process, 0.0))
        op.ended_s = op.began_s + rng.choice((0.1, 2.0))
        self.free_s[process] = op.ended_s + 0.001  # one thing at a time
        for key in rng.sample(list(self.logs), rng.randint(0, 2)):
            at = self.at.get((process, key), 0)
            new = [each for each in self.logs[key] if each[0] >= at][: rng.randint(0, 3)]
            op.polls += [Polled(key, *each) for each in new]
            if new and op.type == "ok":
                self.at[process, key] = new[-1][0] + 1
            if new:
                op.offsets[f"queue|{key}" if process == "c" else f"{process}|{key}"] = (
                    new[-1][0] + 1
                )
        for _ in range(rng.randint(0, 2)):
            self.value += 10
            key = rng.choice(list(self.logs))
            log = self.logs[key]
            offset = log[-1][0] + rng.randint(1, 2) if log else 0
            there = op.type == "ok" or (op.type == "info" and number % 2)
            if there:
                log.append((offset, self.value, number))
            known = offset if op.type == "ok" and rng.random() < 0.9 else None
            op.sends.append(Sent(key, self.value, known))
        self.history.append(op)

    def _spoil(self) -> None:
        """Now and then something is lost, doubled, moved, aborted or read too early."""
        rng = self.rng
        key = rng.choice(list(self.logs))
        log = self.logs[key]
        op = rng.choice(self.history)
        match rng.randint(0, 9):
            case 0 if log:
                log.remove(rng.choice(log))
            case 1 if log:
                log.append((log[-1][0] + 3, *rng.choice(log)[1:]))
            case 2:
                op.type = rng.choice(("ok", "fail", "info"))
            case 3 if op.polls:
                op.polls.insert(0, op.polls[-1])
            case 4 if op.polls:
                del op.polls[rng.randrange(len(op.polls))]
            case 5 if len(self.history) > 1:
                other = rng.choice(self.history)
                op.polls += [
                    Polled(sent.key, sent.offset, sent.value, other.number)
                    for sent in other.sends
                    if sent.offset is not None
                ]
            case 6 if log:
                offset, value, number = rng.choice(log)
                op.polls.append(Polled(key, offset, value, number))
            case 7:
                op.process, op.began_s, op.ended_s = "late", 0.0, rng.choice((0.5, 500.0))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_a_long_history_is_judged_as_a_short_one_is(tmp_path, part) -> None:
    seen = set()
    for seed in range(part * 100, part * 100 + 100):
        history = Chance(seed).make()
        file = written(tmp_path, history)
        plain = rules(anomaly for module in PLAIN for anomaly in module.check(history))
        found, cut = stream(file, lambda _: None)
        assert cut == ""
        assert rules(found) - OF_SENDS == plain, f"seed {seed}"
        seen |= plain
    assert len(seen) > 8, f"chance has shown {seen} only"
    assert list(tmp_path.iterdir()) == [file], "what was written on the way is gone"


def of_unknown_fate(*, was_read: bool, in_the_end: list[Polled], position: int) -> list[Txn]:
    """One that was acknowledged, and one of two values that nobody knows of, with the position of a group."""
    first = Txn("txn", "ok", "a", 1, [Sent("t0-0", 8, 0)], offsets={"queue|t0-0": 1})
    sends = [Sent("t0-0", 16, 2), Sent("t0-1", 17, 0)]
    unknown = Txn("txn", "info", "b", 2, sends, offsets={"queue|t0-0": 3})
    reader = Txn("read", "ok" if was_read else "fail", "r", polls=[Polled("t0-0", 2, 16, 2)])
    final = Txn("read", "ok", FINAL, polls=in_the_end)
    told = Txn("position", "ok", FINAL, offsets={"queue|t0-0": 0}, writers={"queue|t0-0": position})
    return [first, unknown, reader, final, told]


FIRST, SECOND = Polled("t0-0", 0, 8, 1), Polled("t0-1", 0, 17, 2)


@pytest.mark.parametrize(
    ("was_read", "in_the_end", "position", "wanted"),
    [
        (True, [FIRST], 2, ["torn", "unseen"]),
        (True, [FIRST, SECOND], 2, ["torn", "unseen"]),
        (True, [FIRST], 1, ["torn", "torn-offset", "unseen"]),
        (True, [FIRST], -1, ["torn", "torn-offset", "unseen"]),
        (False, [FIRST], 1, []),
        (False, [FIRST], -1, ["torn-offset"]),
    ],
    ids=["gone", "half of it", "its position gone", "all positions gone", "never read", "lost"],
)
def test_what_was_read_of_unknown_fate_and_what_a_group_has_lost_is_found_in_both(
    tmp_path, was_read, in_the_end, position, wanted
) -> None:
    history = of_unknown_fate(was_read=was_read, in_the_end=in_the_end, position=position)
    file = written(tmp_path, history)
    plain = [each for module in (txn_lost, torn_transactions) for each in module.check(history)]
    found, _ = stream(file, lambda _: None)
    assert sorted(each.rule for each in found) == sorted(each.rule for each in plain) == wanted


@pytest.mark.slow
def test_many_buckets_change_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(queue_lines, "VALUES_PER_BUCKET", 1)
    monkeypatch.setattr(queue_lines, "EDGE_S", 0.5)
    test_a_long_history_is_judged_as_a_short_one_is(tmp_path, 1)


@pytest.mark.slow
def test_a_cycle_is_found_though_much_lies_between_its_members(tmp_path) -> None:
    one = Txn("txn", "ok", "a", 1, [Sent("t0-0", 1, 0)], [Polled("t0-1", 0, 2, 2)])
    other = Txn("txn", "ok", "b", 2, [Sent("t0-1", 2, 0)], [Polled("t0-0", 0, 1, 1)])
    one.began_s, one.ended_s, other.began_s, other.ended_s = 0.0, 1.0, 9_000.0, 9_001.0
    between = [
        Txn("txn", "ok", "c", at, [Sent("t1-0", at, at)], began_s=at, ended_s=at + 0.5)
        for at in range(10, 2_000)
    ]
    found, _ = stream(written(tmp_path, [one, *between, other]), lambda _: None)
    assert {(each.rule, each.operations) for each in found} >= {("G1c", (1, 1992))}


def test_more_of_a_kind_than_are_kept_are_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(queue_lines, "KEPT_PER_RULE", 3)
    nobodys = Txn("read", "ok", "a", polls=[Polled("t0-0", at, at, 1) for at in range(10)])
    found, _ = stream(written(tmp_path, [nobodys]), lambda _: None)
    assert [each.rule for each in found] == ["phantom"] * 4
    assert found[-1].what == "and 7 more of them"


@pytest.mark.slow
def test_a_long_history_is_judged_in_little_memory_and_what_it_lacks_is_found(tmp_path) -> None:
    found = queue_measure.measure(tmp_path, 20_000, 3, 1 << 30)
    assert found["found"] == 3, found
    assert {"unseen", "torn"} <= set(found["anomalies"]) <= {"unseen", "torn", *OF_WHAT_LACKS}
    assert found["peak_bytes"] < 200 << 20
