"""Offsets against a reader that keeps nothing but the log, and works everything out anew for each question."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import OffsetDelete
from fencepost.txn.groups.records import OffsetCommitted
from fencepost.txn.groups.registry import decode
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.group_scene import Scene

GROUPS = ("g", "h")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))
PRODUCERS = (7, 8)


class PlainReader:
    """What the log says about one partition: by its records in order, and the markers between them."""

    def __init__(self, scene: Scene) -> None:
        self.events: list[tuple[str, object]] = []
        markers = list(scene.markers)
        for offset, (key, value, producer_id) in enumerate(scene.log):
            while markers and markers[0][0] <= offset:
                self.events.append(("marker", markers.pop(0)[1:]))
            self.events.append(("record", (offset, decode(key, value), producer_id)))
        self.events += [("marker", marker[1:]) for marker in markers]

    def position(self, group: str, topic: str, partition: int) -> tuple[int, bool]:
        """The offset, or -1; and whether a transaction may yet change it."""
        current, written_at = -1, -1
        pending: dict[int, tuple[int, int]] = {}
        for kind, event in self.events:
            if kind == "marker":
                producer_id, commit = event
                found = pending.pop(producer_id, None)
                if found is not None and commit and found[0] > written_at:
                    written_at, current = found
                continue
            offset, record, producer_id = event
            if getattr(record, "topic", None) != topic or record.partition != partition:
                continue
            if record.group_id != group:
                continue
            if not isinstance(record, OffsetCommitted):
                current, written_at = -1, offset
                pending.clear()
            elif producer_id == -1:
                current, written_at = record.committed_offset, offset
            else:
                pending[producer_id] = (offset, record.committed_offset)
        return current, bool(pending)


def play(scene: Scene, number: int, step: tuple[Any, ...]) -> None:
    match step:
        case ("commit", group, where):
            assert scene.commit((*where, number), group=group) == [ErrorCode.none]
        case ("commit in transaction", producer_id, group, where):
            outcome = scene.commit_in_transaction(producer_id, (*where, number), group=group)
            assert outcome == [ErrorCode.none]
        case ("end", producer_id, commit):
            scene.end_transaction(producer_id, commit=commit)
        case ("delete", group, (topic, partition)):
            scene.do(OffsetDelete(group_id=group, topics=((topic, (partition,)),)))
        case ("pass days", days):
            scene.pass_ms(days * 24 * 3_600_000)
        case ("take over",):
            scene.reload()
        case _:
            raise AssertionError(step)


def check(scene: Scene) -> None:
    reader = PlainReader(scene)
    for group in GROUPS:
        for topic, partition in PARTITIONS:
            offset, unstable = reader.position(group, topic, partition)
            here = topic, partition
            assert scene.fetch(topic, partition, group=group)[here] == offset
            stable = scene.fetch(topic, partition, group=group, stable=True)[here]
            assert stable == (ErrorCode.unstable_offset_commit if unstable else offset)


A_GROUP, A_PARTITION = st.sampled_from(GROUPS), st.sampled_from(PARTITIONS)
A_PRODUCER = st.sampled_from(PRODUCERS)
STEP = st.one_of(
    st.tuples(st.just("commit"), A_GROUP, A_PARTITION),
    st.tuples(st.just("commit in transaction"), A_PRODUCER, A_GROUP, A_PARTITION),
    st.tuples(st.just("end"), A_PRODUCER, st.booleans()),
    st.tuples(st.just("delete"), A_GROUP, A_PARTITION),
    st.tuples(st.just("pass days"), st.integers(1, 8)),
    st.tuples(st.just("take over")),
)
HERE = "g", ("t", 0)
OF_7, OF_8 = ("commit in transaction", 7, *HERE), ("commit in transaction", 8, *HERE)


# Not a RuleBasedStateMachine: it leaves out rules at random, and of thirty runs twenty-two had three kinds of steps at most.
@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(STEP, min_size=15, max_size=35))
@example([OF_7, OF_8, ("delete", *HERE), ("end", 7, True), ("end", 8, True)])
@example([OF_7, ("commit", *HERE), ("end", 7, True)])
@example([OF_7, OF_8, OF_7, ("end", 7, True), ("end", 8, False)])
def test_offsets_are_what_a_plain_log_reader_would_say(steps: list[tuple[Any, ...]]) -> None:
    """Commits, transactions, deletions, expiry and takeovers in any order."""
    scene = Scene()
    for number, step in enumerate(steps, 1):
        play(scene, number, step)
        check(scene)
