"""A plan that is interrupted at an awkward moment, by whoever started it, by others, or by an outage."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import moving
from fencepost.node.cli.checked import Failed
from fencepost.node.cli.move_plan import Move
from fencepost.node.cli.moving import Carrier, carry_out
from fencepost.node.cli.throttling import ALL, RATES, Throttle


class InterruptedWire:
    """Ctrl-C comes when the order has been heard, and its answer has not."""

    def __init__(self) -> None:
        self.settings: dict[tuple[str, str], str | None] = {}

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                raise KeyboardInterrupt
            case ApiKey.incremental_alter_configs:
                for resource in fields["resources"]:
                    for each in resource["configs"]:
                        self.settings[resource["resource_name"], each["name"]] = each["value"]
                return SimpleNamespace(responses=[])
            case ApiKey.describe_configs:
                return SimpleNamespace(results=list(map(self._described, fields["resources"])))
        raise AssertionError(key)

    def _described(self, resource: dict[str, Any]) -> Any:
        topic = resource["resource_name"]
        configs = [
            SimpleNamespace(name=name, value=value, config_source=1, error_code=ErrorCode.none)
            for (of, name), value in self.settings.items()
            if of == topic
        ]
        return SimpleNamespace(resource_name=topic, configs=configs, error_code=ErrorCode.none)

    def sleep(self, seconds: float) -> None: ...


def test_a_move_whose_order_was_not_answered_stays_throttled() -> None:
    wire: Any = InterruptedWire()
    move = Move(topic="t", partition=0, before=(1, 2), after=(1, 3), size=10)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        carry_out(Carrier(wire, [move], 1, Throttle(wire, lambda: ["t"], 1000)), say=said.append)
    assert wire.settings["t", "leader.replication.throttled.replicas"] == ALL
    assert wire.settings["", "leader.replication.throttled.rate"] == "1000"
    assert "1 go on moving" in said[0]


# -- what others do meanwhile ------------------------------------------------------------------------

PLAN = [Move(topic="t", partition=each, before=(1, 3), after=(1, 2), size=10) for each in range(3)]


class MovingWire(InterruptedWire):
    """Partitions of topic t on nodes 1 and 3. Orders are heard; `then` is what happens at each look from the second on."""

    def __init__(self, then: Callable[["MovingWire"], None]) -> None:
        super().__init__()
        self.then = then
        self.replicas = dict.fromkeys(range(3), (1, 3))
        self.targets: dict[int, tuple[int, ...]] = {}
        self.orders: list[int] = []
        self.looks = 0
        self.down: set[int] = set()
        self.turns = 0

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                return self._ordered(fields["topics"])
            case ApiKey.list_partition_reassignments:
                self.looks += 1
                if self.looks > 1:
                    self.then(self)
                found = [SimpleNamespace(partition_index=each) for each in sorted(self.targets)]
                return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=found)])
            case ApiKey.describe_topic_partitions:
                index = fields["cursor"]["partition_index"]
                told = SimpleNamespace(partition_index=index, replica_nodes=self.replicas[index])
                return SimpleNamespace(topics=[SimpleNamespace(partitions=[told])])
            case ApiKey.describe_quorum:
                told = SimpleNamespace(leader_id=1)
                topics = [SimpleNamespace(partitions=[told])]
                return SimpleNamespace(error_code=ErrorCode.none, topics=topics)
            case ApiKey.describe_cluster:
                brokers = [
                    SimpleNamespace(broker_id=n, host="h", port=n, is_fenced=n in self.down)
                    for n in (1, 2, 3)
                ]
                return SimpleNamespace(brokers=brokers)
        return super().ask(key, **fields)

    def _ordered(self, topics: Any) -> Any:
        answers = []
        for each in topics[0]["partitions"]:
            index = each["partition_index"]
            self.orders.append(index)
            self.targets[index] = each["replicas"]
            answers.append(
                SimpleNamespace(
                    partition_index=index, error_code=ErrorCode.none, error_message=None
                )
            )
        responses = [SimpleNamespace(name="t", partitions=answers)]
        return SimpleNamespace(error_code=ErrorCode.none, responses=responses)

    def turn_to(self, host: str, port: int) -> None: ...

    def arrive(self) -> None:
        self.replicas |= self.targets
        self.targets.clear()


def carrier_of(wire: Any, *, parallel: int = 1, throttle: int | None = None) -> Carrier:
    return Carrier(wire, PLAN, parallel, Throttle(wire, lambda: ["t", "theirs"], throttle))


def rates(wire: MovingWire) -> set[str | None]:
    return {wire.settings.get(("", name)) for name in RATES}


def test_what_has_arrived_is_done() -> None:
    wire, said = MovingWire(MovingWire.arrive), []
    assert carry_out(carrier_of(wire, throttle=1000), say=said.append)
    assert said == ["3 partitions moved, 30 B copied"]
    assert rates(wire) == {None}


def throttled_by_others(then: Callable[[MovingWire], None]) -> MovingWire:
    wire = MovingWire(then)
    wire.settings |= {("", name): "500" for name in RATES}
    wire.settings["theirs", "leader.replication.throttled.replicas"] = "0:1"
    return wire


def test_what_others_are_throttled_by_is_theirs_again_when_all_has_arrived() -> None:
    seen = []
    wire = throttled_by_others(lambda wire: (seen.append(rates(wire)), wire.arrive()))
    assert carry_out(carrier_of(wire, throttle=1000), say=lambda _: None)
    assert seen == [{"1000"}] * 3 and rates(wire) == {"500"}
    assert wire.settings["theirs", "leader.replication.throttled.replicas"] == "0:1"


def test_a_rate_that_others_have_set_meanwhile_stays() -> None:
    def set_and_arrive(wire: MovingWire) -> None:
        wire.settings |= {("", name): "700" for name in RATES}
        wire.arrive()

    wire = throttled_by_others(set_and_arrive)
    assert carry_out(carrier_of(wire, parallel=3, throttle=1000), say=lambda _: None)
    assert rates(wire) == {"700"}


def test_what_goes_on_without_its_command_keeps_its_rate() -> None:
    wire: Any = throttled_by_others(MovingWire.arrive)
    throttle = Throttle(wire, lambda: ["t", "u", "theirs"], 1000)
    throttle.begin(["t", "u"])
    throttle.end(but=["u"])
    assert rates(wire) == {"1000"} and throttle.is_set
    throttle.end()
    assert rates(wire) == {"500"} and not throttle.is_set


def test_a_move_that_was_cancelled_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is on the move any more, and the replicas are where they were."""
    wire, said = MovingWire(lambda wire: wire.targets.clear()), []
    assert not carry_out(carrier_of(wire, throttle=1000), say=said.append)
    assert wire.orders == [0], "nor is the next begun"
    assert said == ["0 partitions moved, 0 B copied"]
    assert rates(wire) == {None}
    assert capsys.readouterr().err == (
        "fencepost: t-0 stays: it is on 1,3, cancelled or changed by others\n"
        "fencepost: 2 more were not begun\n"
    )


def test_what_a_node_sees_that_is_behind_is_no_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not know of the move yet; the quorum's leader does."""
    asked_leader = []

    def of_now(wire: MovingWire, look: Callable[[], Any]) -> Any:
        asked_leader.append(wire.looks)
        wire.targets, wire.then = hidden, MovingWire.arrive
        wire.looks = 0  # still under way at its next look
        return look()

    monkeypatch.setattr(moving, "of_now", of_now)
    hidden: dict[int, tuple[int, ...]] = {}

    def forget(wire: MovingWire) -> None:
        hidden.update(wire.targets)
        wire.targets = {}

    wire = MovingWire(forget)
    assert carry_out(carrier_of(wire, parallel=3), say=lambda _: None)
    assert asked_leader and wire.orders == [0, 1, 2]


# -- outages -----------------------------------------------------------------------------------------

DOWN = "no broker answers at h:1. Start one."


def test_an_outage_that_passes_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def out_twice(wire: MovingWire) -> None:
        if wire.looks in (2, 3):
            raise Failed(DOWN)
        wire.arrive()

    wire, said = MovingWire(out_twice), []
    assert carry_out(carrier_of(wire, throttle=1000), say=said.append)
    assert said == ["3 partitions moved, 30 B copied"]
    assert rates(wire) == {None}
    told = capsys.readouterr().err
    assert told.count(DOWN) == 1 and told.endswith("fencepost: the cluster answers again\n")


def test_an_outage_that_does_not_end_leaves_the_throttle_and_says_what_lifts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "OUTAGE_S", 0.0)

    def out(wire: MovingWire) -> None:
        raise Failed(DOWN)

    wire, said = MovingWire(out), []
    with pytest.raises(Failed, match="no broker answers"):
        carry_out(carrier_of(wire, throttle=1000), say=said.append)
    assert rates(wire) == {"1000"}
    assert "1 go on moving" in said[0] and "2 were not begun" in said[0]
    assert "The throttle stays" in said[0] and "`fencepost node cancel-moves` lifts it" in said[0]


@pytest.mark.parametrize("was_heard", [False, True])
def test_an_order_in_an_outage_is_given_again_if_it_was_not_heard(*, was_heard: bool) -> None:
    wire = MovingWire(MovingWire.arrive)
    ordered, tries = wire._ordered, []

    def out_once(topics: Any) -> Any:
        tries.append(topics)
        answer = ordered(topics) if was_heard or len(tries) > 1 else None
        if len(tries) == 1:
            raise Failed("no answer. It may happen yet.")
        return answer

    wire._ordered = out_once  # type: ignore[method-assign]
    assert carry_out(carrier_of(wire), say=lambda _: None)
    assert wire.orders == [0, 1, 2]


def test_a_throttle_whose_setting_was_not_answered_is_set_before_anything_moves() -> None:
    seen = []
    wire = MovingWire(lambda wire: (seen.append(rates(wire)), wire.arrive()))
    ask = wire.ask

    def out_once(key: ApiKey, **fields: Any) -> Any:
        if key is ApiKey.incremental_alter_configs:
            wire.ask = ask  # type: ignore[method-assign]
            raise Failed(DOWN)
        return ask(key, **fields)

    wire.ask = out_once  # type: ignore[method-assign]
    assert carry_out(carrier_of(wire, throttle=1000), say=lambda _: None)
    assert seen == [{"1000"}] * 3 and rates(wire) == {None}


def test_a_refusal_is_not_waited_out() -> None:
    wire = MovingWire(MovingWire.arrive)
    refused = SimpleNamespace(error_code=ErrorCode.policy_violation, error_message="too many")
    wire._ordered = lambda _: refused  # type: ignore[method-assign]
    with pytest.raises(Failed, match="too many"):
        carry_out(carrier_of(wire), say=lambda _: None)


@pytest.mark.parametrize("is_down", [False, True])
def test_what_stands_is_said_once_and_whether_its_target_is_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_down: bool
) -> None:
    monkeypatch.setattr(moving, "STANDS_S", 0.0)
    wire = MovingWire(lambda wire: wire.arrive() if wire.looks > 9 else None)
    wire.down = {2} if is_down else set()
    assert carry_out(carrier_of(wire, parallel=3), say=lambda _: None)
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "t-0, t-1, t-2" in told
    assert ("node 2 is down" in told) is is_down
