"""Tables, long transactions, topics that come and go and settings that change, in real runs: what is written down, and how it is judged."""

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fencepost.chaos.checkers import queue_verdict
from fencepost.chaos.checkers.away import Excused
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.lives import Change
from fencepost.chaos.checkers.settings import Asked
from fencepost.chaos.checkers.stuck_polls import StuckPolls
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.checkers.worked import MUST
from fencepost.chaos.runs.judging import judge
from fencepost.chaos.runs.notes import Notes
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.workloads import HOSTED_FINALS, WORKLOADS
from fencepost.chaos.workloads import hosted_scenes
from fencepost.chaos.workloads.churn import Churner
from fencepost.chaos.workloads.hosted_book import LONG, NotedBook
from fencepost.chaos.workloads.hosted_cast import CASTS
from fencepost.chaos.workloads.hosted_final import PASSES
from fencepost.chaos.workloads.hosted_scenes import HostedChurner, HostedTuner, knobs_for
from fencepost.chaos.workloads.txn_book import Book
from fencepost.chaos.workloads.txn_follower import Follower
from test_queue_judging import run_of

OLD, NEW = "0-0-1", "0-0-2"
SEGMENT = "topic append|segment.bytes"
STAYS = "lives-stays-0"


@pytest.fixture
def notes(tmp_path):
    with (tmp_path / "notes.jsonl").open("a") as file:
        yield file


def left_open(notes) -> list[Txn]:
    return Notes(Path(notes.name), 0.0).left_open(time.monotonic())


def client_of(name: str) -> Any:
    clock = SimpleNamespace(steady=time.monotonic)
    return SimpleNamespace(name=name, env=SimpleNamespace(clock=clock, rng=random.Random(1)))


# -- what is written down ------------------------------------------------------------------------


def churner(notes) -> HostedChurner:
    return HostedChurner(client_of("churner-0.1"), NotedBook(notes, 0), ["t"], pause_s=0.1)


def test_a_deletion_whose_administrator_was_killed_is_of_unknown_outcome(notes) -> None:
    churner(notes).begun(Change("delete", "info", "t", OLD))
    (found,) = left_open(notes)
    assert (found.f, found.type, found.named) == ("delete", "info", {"t": OLD})


def test_a_deletion_that_was_acknowledged_is_in_the_history_once(notes) -> None:
    who, change = churner(notes), Change("delete", "info", "t", OLD)
    who.begun(change)
    change.type = "ok"
    who.ended(change)
    (found,) = left_open(notes)
    assert (found.f, found.type, found.named) == ("delete", "ok", {"t": OLD})
    assert found.ended_s > 0.0


def test_a_topic_that_the_life_before_has_deleted_is_looked_for_again(notes, monkeypatch) -> None:
    """It is told an id by a node that lags behind, and the controller knows of no such id: for ever."""

    async def delete(self, topic, topic_id) -> None:
        change = Change("delete", "info", topic, str(topic_id))
        self.begun(change)
        self.ended(change)

    monkeypatch.setattr(Churner, "_delete", delete)
    who = churner(notes)
    who._living["t"] = UUID(int=1)
    asyncio.run(who._delete("t", UUID(int=1)))
    assert who._living["t"] is None


def test_a_change_of_settings_is_written_down_before_it_is_asked_for(notes) -> None:
    book = NotedBook(notes, 0)
    who = HostedTuner(client_of("tuner-0.1"), book, ["append"], "tuned", knobs_for("processes"))
    both = [
        Asked("topic append", "segment.bytes", "7", "info"),
        Asked("topic append", "segment.ms", None, "info"),
    ]
    who.begun(both)
    (found,) = left_open(notes)
    assert (found.f, found.type) == ("alter", "info")
    assert found.named == {SEGMENT: "7", "topic append|segment.ms": None}


def test_kafka_is_asked_for_no_setting_that_it_has_not_or_does_not_show() -> None:
    asked = {name for table in knobs_for("kafka") for name in table}
    assert not asked & hosted_scenes._HIDDEN
    assert "segment.bytes" in asked
    here = {name for table in knobs_for("processes") for name in table}
    assert here >= hosted_scenes._HIDDEN


def test_a_long_transaction_is_not_written_down_again_with_each_batch_and_whole_at_its_end(
    notes,
) -> None:
    book = NotedBook(notes, 0)
    op = book.open("long-0.1")
    for _ in range(40):
        op.sends += [Sent("long-0", book.next_value()) for _ in range(50)]
        book.begun(op)
    lines = Path(notes.name).read_text().splitlines()
    assert len(lines) < 10
    assert sum(line.count('"long-0"') for line in lines) < 3 * len(op.sends)
    book.whole(op)
    (found,) = left_open(notes)
    assert found.sends == op.sends


def test_a_short_transaction_is_written_down_with_each_batch(notes) -> None:
    book = NotedBook(notes, 0)
    op = book.open("short-1.1")
    for batch in range(1, LONG // 4):
        op.sends += [Sent("long-0", book.next_value()) for _ in range(4)]
        book.begun(op)
        assert len(left_open(notes)[0].sends) == 4 * batch


class Answers:
    """A reader that is served what was prepared, and is sent to a later beginning."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.positions: dict[tuple[str, int], int] = {}
        self.stable: dict[tuple[str, int], int] = {}

    async def poll(self, topic: str, partition: int) -> list[Polled] | None:
        place = topic, partition
        before = self.positions.setdefault(place, 0)
        self.stable[place] = 60
        if place == ("cut", 0) and before < 50:
            self.positions[place] = 50
            self.follower._begins_later(place, 50)
            return None
        self.positions[place] = 60
        return [] if before == 60 else [Polled(f"{topic}-{partition}", 59, 7, 1, 1)]


def test_where_a_log_begins_is_said_of_it_alone_and_then_where_its_reader_is() -> None:
    """A reader that says less than all of its partitions gives the others up (`stuck_polls.py`); the final pass says where logs begin
    (`compacted.py`), and nothing else."""
    book = Book()

    async def sleep(_seconds: float) -> None:
        return None

    client = client_of(FINAL)
    client.env.clock = SimpleNamespace(steady=time.monotonic, sleep=sleep)
    follower = Follower(client, book, [("table", 0), ("cut", 0)])
    follower.reader = Answers(follower)  # type: ignore[assignment]
    asyncio.run(follower.read_on())
    said = [op.positions for op in book.history if op.f == "assign"]
    assert said == [{"cut-0": 50}]
    follower.reader.positions["cut", 0] = 40
    follower._goes_on = True
    follower._begins_later(("cut", 0), 50)
    said = [op.positions for op in book.history if op.f == "assign"]
    assert said[1:] == [{"cut-0": 40}, {"table-0": 60, "cut-0": 40}]


def test_who_begins_again_is_another_reader_and_the_one_before_is_owed_nothing() -> None:
    book = Book()
    follower = Follower(client_of("rereader-1.1"), book, [("table", 0)], rereads=True)
    follower._assign(follower.places)
    owing = StuckPolls(Excused((), 3, None))
    sent = txn(1, ("table-0", 10, 0))
    for op in (*book.history, sent):
        list(owing.see(op))
    assert not owing.all_shown(sent.ended_s)
    follower._begin_again()
    for op in book.history[1:]:
        op.ended_s = sent.ended_s + 1.0
        list(owing.see(op))
    assert owing.all_shown(sent.ended_s)
    said = [(op.process, op.positions) for op in book.history]
    first, second = "rereader-1.1.0", "rereader-1.1.1"
    assert said == [(first, {"table-0": 0}), (first, {}), (second, {"table-0": 0})]


def test_a_step_that_brought_nothing_is_told_once_a_second_and_every_other_one_at_once() -> None:
    book = Book()
    client, now = client_of("follower-0.1"), 100.0
    client.env.clock = SimpleNamespace(steady=lambda: now)
    follower = Follower(client, book, [("table", 0)])
    follower.reader = Answers(follower)  # type: ignore[assignment]
    for now in (100.0, 100.1, 100.2, 101.5, 101.6):  # noqa: B007 - the clock reads it
        asyncio.run(follower._read(("table", 0)))
    assert [(op.ended_s, len(op.polls)) for op in book.history] == [(100.0, 1), (101.5, 0)]


# -- who passes over all of it in the end ---------------------------------------------------------


def test_whoever_is_passed_over_by_hosted_readers_has_a_pass() -> None:
    hosted = {name for name, each in WORKLOADS.items() if HOSTED_FINALS in each.final}
    assert hosted == set(PASSES) and hosted <= set(CASTS)
    for name in hosted:
        words = dict(WORKLOADS[name].finals(Plan(workload=name, keys=3)))[HOSTED_FINALS]
        assert words[words.index("--partitions") + 1] == "3"


def test_tables_have_small_segments_and_are_cleaned_soon() -> None:
    plan = Plan(workload="compacted", seed=3)
    of = WORKLOADS["compacted"].of_topics(plan)
    assert set(of) == set(CASTS["compacted"].topics)
    assert all("compact" in settings["cleanup.policy"] for settings in of.values())
    kept = {
        WORKLOADS["compacted"].of_topics(Plan(seed=seed))["table"]["delete.retention.ms"]
        for seed in range(4)
    }
    assert len(kept) == 4
    assert any("log.cleaner.backoff.ms" in each for each in WORKLOADS["compacted"].settings)


# -- how it is judged -----------------------------------------------------------------------------


def txn(number: int, *sends, at: float = 1.0, kind: Any = "ok") -> Txn:
    sent = [Sent(*each) for each in sends]
    return Txn("txn", kind, f"w-{number}.1", number, sent, began_s=at, ended_s=at + 0.5)


def read(key: str, position: int, *polls, process=FINAL, at: float = 50.0) -> Txn:
    op = Txn("read", "ok", process, began_s=at, ended_s=at)
    op.polls, op.positions = [Polled(key, *each) for each in polls], {key: position}
    return op


def said_by(f: Any, process: str, at: float, kind: Any = "ok", **named) -> Txn:
    op = Txn(f, kind, process, began_s=at, ended_s=at)
    op.named = {name.replace("__", "-"): value for name, value in named.items()}
    return op


def verdict(path, workload, *ops):
    found = judge(
        run_of(path, *ops, shown=(), workload=workload, options={"via": ()}), lambda _: None
    )
    return found["verdict"], found["why"]


TABLE = [
    txn(1, ("table-0", 10, 0, 1), ("table-0", 11, 1, 2)),
    txn(2, ("table-0", 20, 3, 1), at=2.0),
    read("table-0", 4, (0, 10, 1, 1), (1, 11, 1, 2), (3, 20, 2, 1), process="follower-0.1", at=3.0),
]


def test_a_table_of_which_only_what_was_overtaken_is_gone_is_valid(tmp_path) -> None:
    said, why = verdict(
        tmp_path / "1", "compacted", *TABLE, read("table-0", 4, (1, 11, 1, 2), (3, 20, 2, 1))
    )
    assert said == "valid", why


def test_a_table_of_which_nothing_was_compacted_proves_nothing(tmp_path) -> None:
    all_of_it = read("table-0", 4, (0, 10, 1, 1), (1, 11, 1, 2), (3, 20, 2, 1))
    said = verdict(tmp_path / "1", "compacted", *TABLE, all_of_it)
    assert said == ("unknown", "nothing was compacted")


def test_a_table_whose_newest_is_gone_is_invalid(tmp_path) -> None:
    back = read("table-0", 4, (0, 10, 1, 1), (1, 11, 1, 2))
    said, why = verdict(tmp_path / "1", "compacted", *TABLE, back)
    assert said == "invalid" and "key-back" in why
    gone = read("table-0", 4, (3, 20, 2, 1))
    said, why = verdict(tmp_path / "2", "compacted", *TABLE, gone)
    assert said == "invalid" and "key-lost" in why and "poll-skip" in why


def test_a_history_of_tables_that_is_too_long_is_not_judged_by_the_rules_of_others(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(queue_verdict, "HELD_MORE_BYTES_MAX", 10)
    sound = read("table-0", 4, (1, 11, 1, 2), (3, 20, 2, 1))
    said, why = verdict(tmp_path / "1", "compacted", *TABLE, sound)
    assert said == "unknown" and "too long for the rules of its workload" in why


def lives_of(*, at_the_end: str | None = NEW, polled: str = NEW) -> list[Txn]:
    return [
        said_by("create", "churner-0.1", 1.0, lives__a=OLD),
        txn(1, (f"lives-a@{OLD}-0", 10, 0), (STAYS, 11, 0), at=2.0),
        read(STAYS, 1, (0, 11, 1), process="lives-0.1", at=3.0),
        said_by("delete", "churner-0.1", 3.0, lives__a=OLD),
        said_by("create", "churner-0.2", 4.0, lives__a=NEW),
        txn(2, (f"lives-a@{NEW}-0", 20, 0), at=5.0),
        read(f"lives-a@{polled}-0", 1, (0, 20, 2)),
        read(STAYS, 1, (0, 11, 1)),
        said_by("shows", FINAL, 51.0, lives__a=at_the_end),
    ]


def test_a_topic_that_came_again_and_has_all_that_is_its_own_is_valid(tmp_path) -> None:
    said, why = verdict(tmp_path / "1", "churn", *lives_of())
    assert said == "valid", why


def test_a_kept_history_says_what_was_deleted_and_made_and_is_judged_by_it(tmp_path) -> None:
    said, why = verdict(tmp_path / "1", "churn", *lives_of(at_the_end=OLD))
    assert said == "invalid" and "topic-back" in why and "topic-lost" in why
    said, why = verdict(tmp_path / "2", "churn", *lives_of(polled=OLD))
    assert said == "invalid" and "another-life" in why
    lost = [op for op in lives_of() if op.process != FINAL or STAYS in op.positions or op.named]
    said, why = verdict(tmp_path / "3", "churn", *lost)
    assert said == "invalid" and "unseen" in why


def test_topics_that_nobody_has_shown_in_the_end_prove_nothing(tmp_path) -> None:
    said = verdict(tmp_path / "1", "churn", *lives_of()[:-1])
    assert said == ("unknown", "nobody has shown which topics there are in the end")


def test_nothing_is_owed_in_time_of_a_topic_that_comes_and_goes(tmp_path) -> None:
    """Whoever sends to it for ten seconds sends to none, for all that anybody knows; nor of what was sent along with that."""
    tried = [
        txn(3, ("lives-a@?-1", 30), (STAYS, 31), at=11.0, kind="fail"),
        txn(4, ("lives-a@?-1", 40), (STAYS, 41), at=49.0, kind="fail"),
    ]
    ops = lives_of()
    folder = run_of(tmp_path / "run", *ops[:6], *tried, *ops[6:], shown=(), workload="churn")
    fault = {"id": "1", "at_s": 10.0, "until_s": 12.0, "fault": "kill", "nodes": [1], "what": "x"}
    folder.append("faults.jsonl", [fault])
    found = judge(folder, lambda _: None)
    assert found["verdict"] == "valid", found["why"]


def tuned(*has: str | None) -> list[Txn]:
    sent = txn(1, ("append-0", 10, 0))
    ops = [
        said_by("alter", "tuner-0.1", 1.0, **{SEGMENT: "1"}),
        said_by("alter", "tuner-0.2", 2.0, **{SEGMENT: "2"}),
        said_by("alter", "tuner-0.2", 2.5, "info", **{SEGMENT: "3"}),
        sent,
        read("append-0", 1, (0, 10, 1), process="follower-0.1", at=3.0),
        read("append-0", 1, (0, 10, 1)),
    ]
    return ops + [
        said_by("shows", f"h:{node}", 52.0, **{SEGMENT: value}) for node, value in enumerate(has)
    ]


def test_a_setting_that_every_node_shows_as_it_was_acknowledged_is_valid(tmp_path) -> None:
    said, why = verdict(tmp_path / "1", "tuned", *tuned("2", "3"))
    assert said == "valid", why


def test_a_node_of_a_real_run_that_shows_an_older_setting_has_lost_it(tmp_path) -> None:
    said, why = verdict(tmp_path / "1", "tuned", *tuned("2", "1"))
    assert said == "invalid" and "1 setting-lost" in why
    assert verdict(tmp_path / "2", "tuned", *tuned())[0] == "unknown"


def test_long_transactions_are_judged_by_the_rules_of_all(tmp_path) -> None:
    sends = [("long-0", 100 + at, at) for at in range(100)]
    polls = [(at, 100 + at, 1) for at in range(100)]
    shown = read("long-0", 100, *polls, process="follower-0.1", at=3.0)
    ops = [txn(1, *sends), shown]
    assert verdict(tmp_path / "1", "long", *ops, read("long-0", 100, *polls))[0] == "valid"
    said, why = verdict(tmp_path / "2", "long", *ops, read("long-0", 100, *polls[:-1]))
    assert said == "invalid" and "unseen" in why and "torn" in why
    small = [txn(1, sends[0]), read("long-0", 1, polls[0], process="f", at=3.0)]
    said, why = verdict(tmp_path / "3", "long", *small, read("long-0", 1, polls[0]))
    assert (said, why) == ("unknown", "no long transaction was committed")
    assert "long" in MUST
