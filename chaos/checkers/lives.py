"""What is written to a topic belongs to that topic, and not to another one of its name: before it, or behind it.

INVARIANT  a record is found under the topic id that it was sent to, and under no other; of a topic that lives at the end all that
           was acknowledged is there, of one that was deleted nothing is owed. A topic that was made, and that nobody asked to
           delete, lives; one whose deletion was acknowledged never comes back.
PREVENTS   a topic that is made anew over the folder of the one before it; a batch, or a marker, that was meant for the old one.
PROVED BY  tests/chaos/test_lives.py::test_a_record_of_a_topic_that_was_deleted_is_not_in_its_successor

A partition's key has the topic's id in it (`life_key`). A send that was tried at two of them is there twice, the last is the one that
took it; one that was sent by name alone has `ANY` for an id, and is where somebody has read it, or in the topic that was made before
and lives to the end. Keys without an id are of topics that nobody deletes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from .history import Anomaly, Kind
from .txn_history import LIFE, Polled, Sent, Txn, Txns

ANY: Final = "?"


@dataclass(slots=True)
class Change:
    """What the administrator asked for, in the order in which he did. `info`: nobody knows whether it happened, or will."""

    f: Literal["create", "delete"]
    type: Kind
    topic: str
    topic_id: str
    asked_s: float = 0.0  # no earlier than this


def noted(history: Txns) -> tuple[list[Change], dict[str, str | None]]:
    """What the administrator asked for, and the ids in the end, of a history that has both: that of a real run."""
    changes: list[Change] = []
    found: dict[str, str | None] = {}
    for op in history:
        if op.f == "create":
            changes += [Change("create", op.type, name, str(its)) for name, its in op.named.items()]
        elif op.f == "delete":
            changes += [Change("delete", op.type, name, str(its)) for name, its in op.named.items()]
        elif op.f == "shows":
            found |= op.named
    return changes, found


def check(
    history: Txns, changes: Sequence[Change], found: Mapping[str, str | None]
) -> list[Anomaly]:
    """`found`: the id of each topic at the end, None where there is none."""
    return _elsewhere(history) + _wrong_lives(changes, found)


def owed(history: Txns, found: Mapping[str, str | None]) -> Txns:
    """What is left for the checkers of transactions: sends to, and polls of, what lives at the end."""
    living = {f"{topic}{LIFE}{topic_id}" for topic, topic_id in found.items()}
    polled_at = {each.value: each.key for op in history for each in op.saw}
    lived_on = _lived_on(history, found)
    left = []
    landed: dict[int, str] = {}
    for op in history:
        # The last of each.
        sends = {each.value: _resolved(each, op, polled_at, lived_on) for each in op.sends}
        landed |= {sent.value: sent.key for sent in sends.values()}
        kept = [sent for sent in sends.values() if _lives(sent.key, living)]
        left.append(replace(op, sends=kept))
    for op in left:
        op.polls = _of_the_living(op.polls, landed, living)
        op.shown = _of_the_living(op.shown, landed, living)
    return left


def _lived_on(history: Txns, found: Mapping[str, str | None]) -> dict[str, tuple[str, float]]:
    """The topics that were there from some moment to the end: their ids, and since when."""
    asked = {
        its for op in history if op.f == "delete" and op.type != "fail" for its in op.named.values()
    }
    made = {
        name: (str(its), op.ended_s)
        for op in history
        if op.f == "create" and op.type == "ok"
        for name, its in op.named.items()
        if its == found.get(name)
    }
    return {name: each for name, each in made.items() if each[0] not in asked}


def _of_the_living(
    polls: Iterable[Polled], landed: Mapping[int, str], living: set[str]
) -> list[Polled]:
    return [
        each
        for each in polls
        if _lives(each.key, living) and landed.get(each.value, each.key) == each.key
    ]


def _lives(key: str, living: set[str]) -> bool:
    return LIFE not in key or key.rpartition("-")[0] in living


def _resolved(
    sent: Sent, op: Txn, polled_at: Mapping[int, str], lived_on: Mapping[str, tuple[str, float]]
) -> Sent:
    """Where it was read; or in the topic that was there when it was sent, and is for ever."""
    key = polled_at.get(sent.value)
    topic, _, rest = sent.key.partition(LIFE)
    if key is None and topic in lived_on and rest.startswith(f"{ANY}-"):
        life, since_s = lived_on[topic]
        key = f"{topic}{LIFE}{life}-{rest.rpartition('-')[2]}" if since_s <= op.began_s else None
    if key is None or not _may_be(sent.key, key):
        return sent
    return sent._replace(key=key)


def _may_be(sent_to: str, polled_at: str) -> bool:
    if sent_to == polled_at:
        return True
    topic, _, rest = sent_to.partition(LIFE)
    if not rest.startswith(f"{ANY}-"):
        return False
    life, _, partition = polled_at.rpartition("-")
    return life.partition(LIFE)[0] == topic and rest == f"{ANY}-{partition}"


def _elsewhere(history: Txns) -> list[Anomaly]:
    found = []
    writers: dict[int, tuple[Txn, list[str]]] = {}
    for op in history:
        for sent in op.sends:
            writers.setdefault(sent.value, (op, []))[1].append(sent.key)
    for op in history:
        for each in op.saw:
            writer, keys = writers.get(each.value, (None, []))
            if writer is not None and not any(_may_be(key, each.key) for key in keys):
                what = f"{op.process} read {each.value} at {each.offset}, which {writer.process}"
                lines = (writer.line, op.line)
                found.append(Anomaly("another-life", each.key, f"{what} sent to {keys}", lines))
    return found


def _wrong_lives(changes: Sequence[Change], found: Mapping[str, str | None]) -> list[Anomaly]:
    anomalies = []
    asked = {each.topic_id for each in changes if each.f == "delete" and each.type != "fail"}
    gone = {each.topic_id for each in changes if each.f == "delete" and each.type == "ok"}
    for topic, lives in sorted(found.items()):
        made = [each.topic_id for each in changes if (each.f, each.topic) == ("create", topic)]
        kept = [each for each in made if each not in asked]
        if kept and lives not in kept:
            what = f"{kept[-1]} was made and not deleted; at the end there is {lives}"
            anomalies.append(Anomaly("topic-lost", topic, what))
        if lives in gone:
            anomalies.append(Anomaly("topic-back", topic, f"{lives} was deleted, and is there"))
    return anomalies
