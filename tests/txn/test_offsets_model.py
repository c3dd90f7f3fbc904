"""Offsets against a reader that keeps nothing but the log, and works everything out anew for each question."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.commands import OffsetDelete
from fencepost.txn.groups.records import OffsetCommitted
from fencepost.txn.groups.registry import decode
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
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


class Offsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.next = 0

    def _position(self, where: tuple[str, int]) -> tuple[str, int, int]:
        self.next += 1
        return (*where, self.next)

    @rule(group=st.sampled_from(GROUPS), where=st.sampled_from(PARTITIONS))
    def commit(self, group, where) -> None:
        assert self.scene.commit(self._position(where), group=group) == [ErrorCode.none]

    @rule(
        producer=st.sampled_from(PRODUCERS),
        group=st.sampled_from(GROUPS),
        where=st.sampled_from(PARTITIONS),
    )
    def commit_in_transaction(self, producer, group, where) -> None:
        position = self._position(where)
        outcome = self.scene.commit_in_transaction(producer, position, group=group)
        assert outcome == [ErrorCode.none]

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def end_transaction(self, producer, commit) -> None:
        self.scene.end_transaction(producer, commit=commit)

    @rule(group=st.sampled_from(GROUPS), where=st.sampled_from(PARTITIONS))
    def delete(self, group, where) -> None:
        topic, partition = where
        self.scene.do(OffsetDelete(group_id=group, topics=((topic, (partition,)),)))

    @rule(days=st.integers(1, 8))
    def pass_days(self, days) -> None:
        self.scene.pass_ms(days * 24 * 3_600_000)

    @rule()
    def take_over(self) -> None:
        self.scene.reload()

    @invariant()
    def offsets_are_what_the_log_says(self) -> None:
        reader = PlainReader(self.scene)
        for group in GROUPS:
            for topic, partition in PARTITIONS:
                offset, unstable = reader.position(group, topic, partition)
                here = topic, partition
                assert self.scene.fetch(topic, partition, group=group)[here] == offset
                stable = self.scene.fetch(topic, partition, group=group, stable=True)[here]
                assert stable == (ErrorCode.unstable_offset_commit if unstable else offset)


@pytest.mark.slow
def test_offsets_are_what_a_plain_log_reader_would_say() -> None:
    """Commits, transactions, deletions, expiry and takeovers in any order."""
    run_state_machine_as_test(
        Offsets, settings=settings(max_examples=30, stateful_step_count=20, deadline=None)
    )
