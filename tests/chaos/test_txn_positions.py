"""What is noted of groups when all is over, by brokers that do not say everything."""

import json
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from fencepost.chaos.checkers import torn_transactions
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.harness.transactions_kill_loop import LastLook
from fencepost.chaos.workloads import queue_final, txn_positions
from fencepost.chaos.workloads.queue_final import ALL_READ, UNTOLD, FinalPolls

UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
NOTHING, TOLD = (OFFSET_INVALID, "", None), (3, "7", None)
REFUSED = (OFFSET_INVALID, "", UNSTABLE)


class Answers:
    """A consumer to which brokers say of each place what is written here, one answer after the other; the last stays."""

    def __init__(self, **by_key: list) -> None:
        self.by_key = {key.replace("_", "-"): answers for key, answers in by_key.items()}
        self.asked: list[str] = []
        self.closed = False

    def committed(self, places, timeout):
        assert timeout > 0
        return [self._said(place) for place in places]

    def _said(self, place):
        key = f"{place.topic}-{place.partition}"
        self.asked.append(key)
        answers = self.by_key[key]
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(said, Exception):
            raise said
        offset, metadata, error = said
        return SimpleNamespace(
            topic=place.topic,
            partition=place.partition,
            offset=offset,
            metadata=metadata,
            error=error,
        )

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    monkeypatch.setattr(txn_positions, "PAUSE_S", 0.001)
    monkeypatch.setattr(txn_positions, "COMMITTED_S", 0.05)
    monkeypatch.setattr(txn_positions, "AGAIN_S", 0.01)


# Two that were acknowledged, with a place each, and what they sent.
COMMITTED = [
    Txn("txn", "ok", "a", 1, [Sent("t-0", 8, 0)], offsets={"queue|t-0": 1}),
    Txn("txn", "ok", "a", 2, [Sent("t-0", 16, 2)], offsets={"queue|t-0": 1, "queue|t-1": 3}),
]
SEEN = Txn("read", "ok", FINAL, polls=[Polled("t-0", 0, 8, 1), Polled("t-0", 2, 16, 2)])


def final_polls_find(tmp_path, answers: Answers) -> tuple[list[Txn], dict]:
    notes = (tmp_path / "final.jsonl").open("w+")
    final = FinalPolls("127.0.0.1:1", {}, notes)
    final._consumer = lambda _group: answers
    untold = final.positions({"queue": ["t-0", "t-1"]})
    notes.seek(0)
    found = [Txn(**json.loads(line)) for line in notes]
    notes.close()
    return found, untold


def kill_loop_finds(_tmp_path, answers: Answers) -> tuple[list[Txn], dict]:
    look = LastLook("127.0.0.1:1", [])
    look._consumer = lambda _group: answers
    return look.positions(COMMITTED), look.untold


BOTH = pytest.mark.parametrize(
    "find", [final_polls_find, kill_loop_finds], ids=["final polls", "kill loop"]
)


@BOTH
def test_a_place_without_a_position_is_noted_and_its_loss_is_found(tmp_path, find) -> None:
    answers = Answers(t_0=[(1, "2", None)], t_1=[NOTHING])
    found, untold = find(tmp_path, answers)
    assert untold == {} and answers.closed
    assert [(op.offsets, op.writers) for op in found] == [
        ({"queue|t-0": 1, "queue|t-1": -1}, {"queue|t-0": 2, "queue|t-1": -1})
    ]
    torn = torn_transactions.check([*COMMITTED, SEEN, *found])
    assert [(each.rule, each.key) for each in torn] == [("torn-offset", "queue|t-1")]
    assert "of transaction -1, not of 2, a committed one" in torn[0].what


@BOTH
def test_a_place_with_an_error_is_unknown_and_the_others_are_known(tmp_path, find) -> None:
    found, untold = find(tmp_path, Answers(t_0=[TOLD], t_1=[REFUSED]))
    assert [op.writers for op in found] == [{"queue|t-0": 7}]
    assert list(untold) == ["queue|t-1"]
    assert "UNSTABLE_OFFSET_COMMIT" in untold["queue|t-1"]


def test_what_had_no_answer_is_asked_again_and_what_had_one_is_not(tmp_path) -> None:
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    answers = Answers(t_0=[TOLD], t_1=[REFUSED, late, REFUSED, NOTHING])
    found, untold = final_polls_find(tmp_path, answers)
    assert untold == {}
    assert [op.writers for op in found] == [{"queue|t-0": 7, "queue|t-1": -1}]
    assert answers.asked == ["t-0", *["t-1"] * 4]


def test_a_group_that_is_not_told_of_does_not_keep_the_others(tmp_path) -> None:
    gone = KafkaException(KafkaError(KafkaError._TRANSPORT))
    consumers = {"a": Answers(t_0=[gone]), "b": Answers(t_0=[TOLD])}
    asked = {group: ["t-0"] for group in consumers}
    found = list(txn_positions.all_positions(consumers.__getitem__, asked))
    assert [op.writers for op, _ in found] == [{}, {"b|t-0": 7}]
    assert [list(untold) for _, untold in found] == [["a|t-0"], []]
    assert all(each.closed for each in consumers.values())


def test_that_all_was_read_is_said_before_any_group_is_asked(tmp_path, monkeypatch, capsys) -> None:
    """Whoever ends this process while it asks, knows what the reads are worth."""
    monkeypatch.setattr(FinalPolls, "run", lambda *_: True)
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"keys": {}, "groups": {"queue": ["t-0"]}}')
    words = ["--bootstrap", "127.0.0.1:1", "--wanted", str(wanted)]
    words += ["--notes", str(tmp_path / "notes.jsonl")]
    monkeypatch.setattr(FinalPolls, "_consumer", lambda *_: Answers(t_0=[REFUSED]))
    assert queue_final.main(words) == UNTOLD
    said = capsys.readouterr().out.splitlines()
    assert said[0] == ALL_READ and "queue|t-0" in said[1]

    def ends(*_):
        raise SystemError

    monkeypatch.setattr(FinalPolls, "_consumer", ends)
    with pytest.raises(SystemError):
        queue_final.main(words)
    assert capsys.readouterr().out == f"{ALL_READ}\n"
