"""What judges a long history says of short ones what the plain checkers say."""

import random

import pytest
from fencepost.chaos.checkers import (
    aborted_reads,
    consumed,
    cycles,
    polls,
    queue_lines,
    sends,
    torn_transactions,
    txn_log,
    txn_lost,
)
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_buckets import BUFFER_BYTES, Buckets, Names, Words
from fencepost.chaos.checkers.queue_places import Stretches
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line

PLAIN = (aborted_reads, consumed, cycles, polls, sends, torn_transactions, txn_log, txn_lost)


def written(folder, history):
    file = folder / "history.jsonl"
    file.write_text("".join(f"{to_line(op)}\n" for op in history))
    for number, op in enumerate(history, 1):
        op.line = number
    return file


def rules(anomalies):
    """Which edges a cycle needs may depend on who is not on it: one name for all. Likewise of what has overtaken what."""
    names = {"G1c" if each.rule.startswith("G1c") else each.rule for each in anomalies}
    return {"key-order" if each.endswith("nonmonotonic-send") else each for each in names}


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


def test_a_name_that_is_forgotten_can_still_be_said(tmp_path) -> None:
    words = Words(tmp_path, "words")
    names = Names(words)
    assert [names.number(each) for each in ("a", "b\n", "a", "ü")] == [0, 1, 0, 2]
    names.forget("a")
    assert names.name(1) == "b\n"
    assert names.number("a") == 3
    assert [names.name(number) for number in range(len(names))] == ["a", "b\n", "ü", "a"]
    words.close()


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
            self.history += [final, self._positions()]
        return self.history

    def _positions(self) -> Txn:
        """Of each place the newest that is committed, or nearly so."""
        told = Txn("position", "ok", FINAL, began_s=902.0, ended_s=903.0)
        for op in self.history:
            for place, at in op.offsets.items():
                if op.type == "ok" or op.number % 2:
                    told.offsets[place], told.writers[place] = at, op.number
        wrong = self.rng.random()
        for place in list(told.offsets)[:1]:
            told.offsets[place] += wrong < 0.1
            told.writers[place] -= wrong > 0.9
        return told

    def _one(self, number: int) -> None:
        rng = self.rng
        process = rng.choice("abc")
        op = Txn("txn", rng.choice(("ok", "ok", "ok", "info", "fail")), process, number)
        op.began_s = max(number + rng.random(), self.free_s.get(process, 0.0))
        op.ended_s = op.began_s + rng.choice((0.1, 2.0))
        self.free_s[process] = op.ended_s + 0.001  # one thing at a time
        if rng.random() < 0.3:
            self._assign(op)
        for key in rng.sample(list(self.logs), rng.randint(0, 2)):
            at = self.at.get((process, key), 0)
            new = [each for each in self.logs[key] if each[0] >= at][: rng.randint(0, 3)]
            op.polls += [Polled(key, *each) for each in new]
            if new and op.type == "ok":
                self.at[process, key] = new[-1][0] + 1
            if new:
                place = f"{process}|{key}" if process == "a" else f"queue|{key}"
                op.offsets[place] = new[-1][0] + 1
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

    def _assign(self, of: Txn) -> None:
        """Before it, and where it begins, or nearly so; or its group says so."""
        begins = {key: self.at.get((of.process, key), 0) for key in self.logs}
        begins["t0-1"] += self.rng.choice((0, 0, 0, -1, 1))
        chosen = Txn("assign", "ok", of.process, began_s=of.began_s, ended_s=of.began_s)
        if self.rng.random() < 0.5:
            chosen.positions, chosen.begins = {"t0-0": 0}, begins
        self.history.append(chosen)
        if not chosen.begins:
            said = Txn("position", "ok", of.process, began_s=of.began_s, ended_s=of.began_s)
            said.offsets = {f"queue|{key}": at for key, at in begins.items()}
            said.writers = dict.fromkeys(said.offsets, -1)
            self.history.append(said)

    def _spoil(self) -> None:
        """Now and then something is lost, doubled, moved, aborted or read too early."""
        rng = self.rng
        key = rng.choice(list(self.logs))
        log = self.logs[key]
        op = rng.choice([each for each in self.history if each.f == "txn"])
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
            case 8:
                self._swap(key)
            case 9 if op.polls:
                op.shown, op.polls = op.polls, []

    def _swap(self, key: str) -> None:
        """Two records of a key have changed places, and everybody was told so: one batch has overtaken another."""
        log = self.logs[key]
        if len(log) < 2:
            return
        one, other = self.rng.sample(range(len(log)), 2)
        at = {log[one][1]: log[other][0], log[other][1]: log[one][0]}
        self.logs[key] = sorted((at.get(value, offset), value, n) for offset, value, n in log)
        for op in self.history:
            op.sends = [
                sent
                if sent.offset is None
                else sent._replace(offset=at.get(sent.value, sent.offset))
                for sent in op.sends
            ]
            op.polls = [each._replace(offset=at.get(each.value, each.offset)) for each in op.polls]


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
        assert rules(found) == plain, f"seed {seed}"
        seen |= plain
    assert len(seen) > 8, f"chance has shown {seen} only"
    assert list(tmp_path.iterdir()) == [file], "what was written on the way is gone"


def all_rules(history):
    return {each.rule for module in PLAIN for each in module.check(history)}


def of_unknown_fate(reader: Txn, in_the_end: list[Polled], position: int) -> list[Txn]:
    """One that was acknowledged, and one of two values that nobody knows of, with the position of a group."""
    first = Txn("txn", "ok", "a", 1, [Sent("t0-0", 8, 0)], offsets={"queue|t0-0": 6})
    sends = [Sent("t0-0", 16, 2), Sent("t0-1", 17, 0)]
    unknown = Txn("txn", "info", "b", 2, sends, offsets={"queue|t0-0": 7})
    final = Txn("read", "ok", FINAL, polls=in_the_end)
    put = {-1: -1, 1: 6, 2: 7}[position]
    told = Txn(
        "position", "ok", FINAL, offsets={"queue|t0-0": put}, writers={"queue|t0-0": position}
    )
    return [first, unknown, reader, final, told]


NOBODY = Txn("read", "ok", "r")
READ = Txn("read", "ok", "r", polls=[Polled("t0-0", 2, 16, 2)])
FAILED = Txn("txn", "fail", "r", 3, polls=READ.polls)
UNKNOWN = Txn("txn", "info", "r", 3, polls=READ.polls)
TAKEN_AWAY = Txn("txn", "fail", "r", 3, shown=READ.polls)


FIRST, SECOND = Polled("t0-0", 0, 8, 1), Polled("t0-1", 0, 17, 2)


@pytest.mark.parametrize(
    ("reader", "in_the_end", "position", "wanted"),
    [
        (READ, [FIRST], 2, ["torn", "unseen"]),
        (READ, [FIRST, SECOND], 2, ["torn", "unseen"]),
        (READ, [FIRST], 1, ["torn", "torn-offset", "unseen"]),
        (READ, [FIRST], -1, ["torn", "torn-offset", "unseen"]),
        (FAILED, [FIRST], 2, ["torn", "unseen"]),
        (UNKNOWN, [FIRST], 2, ["torn", "unseen"]),
        (TAKEN_AWAY, [FIRST], 2, ["torn", "unseen"]),
        (NOBODY, [FIRST], 1, []),
        (NOBODY, [FIRST], -1, ["torn-offset"]),
    ],
    ids=[
        "gone",
        "half of it",
        "its position gone",
        "all positions gone",
        "read by one that failed",
        "read by one of unknown fate",
        "shown and taken away",
        "never read",
        "lost",
    ],
)
def test_what_was_read_of_unknown_fate_and_what_a_group_has_lost_is_found_in_both(
    tmp_path, reader, in_the_end, position, wanted
) -> None:
    history = of_unknown_fate(reader, in_the_end, position)
    file = written(tmp_path, history)
    plain = [each for module in (txn_lost, torn_transactions) for each in module.check(history)]
    found, _ = stream(file, lambda _: None)
    assert sorted(each.rule for each in found) == sorted(each.rule for each in plain) == wanted


@pytest.mark.parametrize(
    ("position", "at_offset"), [(1, 999), (1, -1), (5, 6)], ids=["beyond", "nowhere", "nobody's"]
)
def test_a_position_that_is_not_where_its_transaction_has_put_it_is_found_in_both(
    tmp_path, position, at_offset
) -> None:
    history = of_unknown_fate(NOBODY, [FIRST], 1)
    history[-1].offsets = {"queue|t0-0": at_offset}
    history[-1].writers = {"queue|t0-0": position}
    file = written(tmp_path, history)
    [plain] = torn_transactions.check(history)
    [found] = stream(file, lambda _: None)[0]
    assert (found.rule, found.operations) == (plain.rule, plain.operations)
    assert found.rule == "torn-offset"


def of_shown(writer: Txn, *polls: Polled) -> list[Txn]:
    poller = Txn("txn", "ok", "r", 3, shown=[Polled("t0-0", 2, 16, 2)])
    return [writer, poller, Txn("read", "ok", "s", polls=list(polls))]


@pytest.mark.parametrize(
    ("history", "wanted"),
    [
        (of_shown(Txn("txn", "fail", "b", 2, [Sent("t0-0", 16)])), "G1a"),
        (
            of_shown(Txn("txn", "ok", "b", 2, [Sent("t0-0", 16)]), Polled("t0-0", 4, 16, 2)),
            "duplicate",
        ),
        (
            of_shown(
                Txn("txn", "ok", "b", 2, [Sent("t0-0", 16, 2), Sent("t0-0", 17)]),
                Polled("t0-0", 2, 17, 2),
            ),
            "inconsistent-offsets",
        ),
    ],
    ids=["aborted", "doubled", "another's"],
)
def test_what_was_shown_and_taken_away_is_looked_at_in_both(tmp_path, history, wanted) -> None:
    file = written(tmp_path, history)
    assert all_rules(history) == {wanted}
    assert {each.rule for each in stream(file, lambda _: None)[0]} == {wanted}


def test_what_was_shown_and_taken_away_is_no_step_of_who_polled_it(tmp_path) -> None:
    """It may poll the same again, and it has not read it: nobody waits for anybody."""
    early = Txn("txn", "ok", "r", 1, polls=[Polled("t0-0", 2, 16, 2)], began_s=5.0, ended_s=6.0)
    writer = Txn("txn", "ok", "b", 2, [Sent("t0-0", 16, 2)], began_s=3.0, ended_s=4.0)
    again = Txn("txn", "ok", "r", 3, shown=early.polls, began_s=0.0, ended_s=1.0)
    history = [again, writer, early, Txn("txn", "ok", "r", 4, shown=early.polls, began_s=7.0)]
    assert all_rules(history) == set()
    assert stream(written(tmp_path, history), lambda _: None)[0] == []


OUT_OF_ORDER = {
    "nonmonotonic-send": lambda: [
        Txn("txn", "ok", "a", 1, [Sent("t0-0", 8, 2)]),
        Txn("txn", "ok", "a", 2, [Sent("t0-0", 16, 0)]),
    ],
    "int-nonmonotonic-send": lambda: [
        Txn("txn", "ok", "a", 1, [Sent("t0-0", 8, 2), Sent("t0-0", 9, 0)])
    ],
    "key-order": lambda: [
        Txn("txn", "ok", "a", 1, [Sent("t0-0", 8)]),
        Txn("txn", "ok", "a", 2, [Sent("t0-0", 16)]),
        Txn("read", "ok", "r", polls=[Polled("t0-0", 0, 16, 2), Polled("t0-0", 2, 8, 1)]),
    ],
}


@pytest.mark.parametrize("rule", sorted(OUT_OF_ORDER))
def test_a_batch_that_has_overtaken_another_is_found_in_both(tmp_path, rule) -> None:
    history = OUT_OF_ORDER[rule]()
    found, _ = stream(written(tmp_path, history), lambda _: None)
    plain = sends.check(history)
    assert {each.rule for each in found} >= {rule, "key-order"}
    assert {each.rule for each in plain} >= {rule, "key-order"}
    of_order = [each.operations for each in found if each.rule == "key-order"]
    assert of_order == [
        tuple(sorted(set(each.operations))) for each in plain if each.rule == "key-order"
    ]


def test_a_stretch_is_touched_by_the_one_that_reaches_furthest() -> None:
    rng = random.Random(7)
    stretches, plain = Stretches(), []
    assert not stretches.touches(0, 100)
    for _ in range(40):
        for _ in range(5):
            first = rng.randrange(100)
            plain.append((first, first + rng.choice((0, 1, 50))))
            stretches.add(*plain[-1])
        for _ in range(20):
            start = rng.randrange(160)
            end = start + rng.randrange(1, 5)
            wanted = any(first < end and last >= start for first, last in plain)
            assert stretches.touches(start, end) is wanted
        if len(plain) > 60:
            stretches, plain = Stretches(), []


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
