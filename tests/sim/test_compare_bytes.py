"""Replicas byte by byte at the end of a run; without a world, each log given as its batches."""

from types import SimpleNamespace
from uuid import UUID

import pytest
from fencepost.chaos.sim import bytes_agree
from fencepost.chaos.sim.cluster_watch import ClusterWatch
from fencepost.cluster.base.ids import TopicPartition

TOPIC = UUID(int=1)
NAME = TopicPartition("t", 0)


def compared(monkeypatch, logs: dict[int, str], isr: tuple[int, ...]) -> list[str]:
    """The rules that are broken; a log's letters are its batches."""

    def crc(node_id: int, _log: object, start: int, end: int) -> int:
        return hash(logs[node_id][start:end])

    def replica(letters: str) -> SimpleNamespace:
        log = SimpleNamespace(log_start_offset=0, log_end_offset=len(letters))
        partitions = {NAME: SimpleNamespace(topic_id=TOPIC, log=log)}
        return SimpleNamespace(replicas=SimpleNamespace(partitions=partitions))

    found: list[str] = []
    watch = ClusterWatch.__new__(ClusterWatch)
    brokers = {node: replica(letters) for node, letters in logs.items()}
    watch.nodes = SimpleNamespace(up=lambda: [*logs], brokers=brokers)
    newest = SimpleNamespace(isr=isr, elr=(), offline=())
    watch.epochs, watch._cleaned = SimpleNamespace(newest={f"{TOPIC}-0": newest}), set()
    monkeypatch.setattr(ClusterWatch, "_find_on", lambda _watch, node_id: node_id)
    monkeypatch.setattr(bytes_agree, "_crc", crc)
    monkeypatch.setattr(
        ClusterWatch, "report", lambda _watch, told: found.extend(each.rule for each in told)
    )
    assert watch.compare_bytes() == 1
    return found


@pytest.mark.parametrize(
    ("logs", "isr", "rules"),
    [
        ({1: "abc", 2: "abc", 3: "abc"}, (1, 2, 3), []),
        ({1: "abc", 2: "abX", 3: "abc"}, (1, 2, 3), ["diverged"]),
        # One has not been sent the last batch yet.
        ({1: "abcd", 2: "abc", 3: "abc"}, (1, 2, 3), []),
        ({1: "abcd", 2: "aXc", 3: "abcd"}, (1, 2, 3), ["diverged"]),
        # Whoever is not in the ISR may have to cut what nobody has committed.
        ({1: "abcd", 2: "aXc", 3: "abcd"}, (1, 3), []),
    ],
)
def test_replicas_are_the_same_bytes_as_far_as_all_of_them_go(
    monkeypatch, logs, isr, rules
) -> None:
    assert compared(monkeypatch, logs, isr) == rules
