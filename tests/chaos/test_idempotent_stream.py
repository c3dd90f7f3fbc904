"""What the producers of the kill loops hear of librdkafka."""

import pytest
from fencepost.chaos.checkers.history import Operation
from fencepost.chaos.checkers.verdict import judge
from fencepost.chaos.workloads.idempotent_stream import (
    Damaged,
    IdempotentStream,
    Plan,
    parse,
    payload,
)

SAID = (
    "DRAIN [producer-1#producer-3] [thrd:127.0.0.1:26120/3]: Beginning partition drain in state "
    "Assigned for PID{Id:1001,Epoch:0} epoch bump for 3 partition(s) with in-flight requests: "
    "skipped sequence numbers"
)
HARMLESS = "DRAIN [producer-1#producer-3] [thrd:main]: stream [5] beginning partition drain: retry"


def test_a_producer_that_begins_a_new_epoch_is_an_anomaly() -> None:
    stream = IdempotentStream(Plan(bootstrap="127.0.0.1:1", topic="stream"))
    logger = stream._listening(1)
    logger.log(10, "%s", HARMLESS)
    assert stream.history == []
    logger.log(10, "%s", SAID)
    stream.history.append(Operation("send", "ok", 1, "stream-0", 1, 0))
    (found,) = [each for each in judge(stream.history).anomalies if each.rule == "dead-client"]
    assert "skipped sequence numbers" in found.what


def test_while_an_older_build_serves_it_is_told_and_not_judged() -> None:
    serves = ["node 1 is of an older build"]
    stream = IdempotentStream(
        Plan(bootstrap="127.0.0.1:1", topic="stream"), excuse=lambda: "".join(serves)
    )
    logger = stream._listening(1)
    logger.log(10, "%s", SAID)
    assert stream.history == []
    (told,) = stream.excused
    assert told.endswith("skipped sequence numbers. node 1 is of an older build")
    serves.clear()
    logger.log(10, "%s", SAID)
    assert [each.f for each in stream.history] == ["die"]


@pytest.mark.parametrize(
    "data", [b"", b"1", b"1:2", b"x:2:", b"1:2:1:3:", payload(1, 2, 40)[:-1] + b"\0"]
)
def test_what_nobody_sends_is_damage(data: bytes) -> None:
    """Whoever was shown it ends with that; any other error would end its thread, and be no line of the history."""
    with pytest.raises(Damaged):
        parse(data)
    assert parse(payload(1, 2, 40)) == (1, 2)


def test_a_follower_that_is_shown_what_nobody_sends_says_so(monkeypatch) -> None:
    stream = IdempotentStream(Plan(bootstrap="127.0.0.1:1", topic="stream"))
    monkeypatch.setattr(stream, "_consumer", Served)
    stream._follow()
    assert [(each.f, each.process) for each in stream.history] == [("die", "follower")]


class Served:
    """A consumer that is served one record without a byte in it."""

    def assign(self, _places: object) -> None: ...

    def close(self) -> None: ...

    def consume(self, _most: int, timeout: float) -> "list[Served]":
        return [self]

    def error(self) -> None: ...

    def value(self) -> bytes:
        return b""
