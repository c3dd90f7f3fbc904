"""The shell around a machine: what leaves when, and what becomes of everyone when it is lost."""

import asyncio
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.runtime.decision import (
    Answer,
    CancelTimer,
    Decision,
    Parked,
    Producer,
    SetTimer,
)
from fencepost.txn.runtime.encoding import BATCH_BYTES_MAX, encode
from fencepost.txn.runtime.shard import Shard
from fencepost.txn.runtime.ticker import Ticker
from support.fake_log import FakeLog

E = ErrorCode


class Line:
    """A record of the machine below."""

    def __init__(self, text: str) -> None:
        self.text = text

    def encode(self) -> tuple[bytes, bytes]:
        return b"line", self.text.encode()


class Lines:
    """A machine whose commands say what it decides."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, int, int]] = []
        self.steps: list[Any] = []
        self.ticked: list[Any] = []
        self.ended: list[tuple[int, bool]] = []

    def decide(self, command: Decision, now_ms: int) -> Decision:
        return command

    def apply(self, change: Any, offset: int = -1, producer_id: int = -1) -> None:
        if isinstance(change, Line):
            assert change.text != "illegal"
            self.applied.append((change.text, offset, producer_id))
        else:
            self.steps.append(change)

    def tick(self, key: Any, now_ms: int) -> Decision:
        self.ticked.append(key)
        return Decision(records=(Line("tick"),))

    def loaded(self, now_ms: int) -> Decision:
        return Decision(effects=(SetTimer(("first",), 1_000),))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.ended.append((producer_id, commit))


class Setting:
    """A shard on a simulated node."""

    def __init__(self, world: World, *, commits_at_once: bool = False) -> None:
        env = world.node("n")
        self.log = FakeLog(commits_at_once=commits_at_once)
        self.machine = Lines()
        self.ticker = Ticker(env.clock)
        env.tasks.spawn(self.ticker.run(), name="timers")
        self.lost: list[ErrorCode] = []
        self.shard = Shard(
            "lines-0",
            env=env,
            log=self.log,
            machine=self.machine,
            ticker=self.ticker,
            commit_timeout_ms=5_000,
            on_lost=lambda _, code: self.lost.append(code),
        )

    async def say(self, *lines: str, reply: Any = "done", **more: Any) -> Any:
        records = tuple(Line(text) for text in lines)
        return await self.shard.execute(Decision(reply=reply, records=records, **more))


def run(scenario: Any, *, commits_at_once: bool = False) -> Setting:
    with World(seed=1) as world:
        setting: list[Setting] = []

        async def go() -> None:
            setting.append(Setting(world, commits_at_once=commits_at_once))
            await scenario(setting[0])

        world.run(world.on(world.node("n"), go()))
        return setting[0]


def later(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_no_reply_leaves_before_what_it_rests_on_is_committed() -> None:
    async def scenario(s: Setting) -> None:
        first, second = later(s.say("a", "b")), later(s.say("c"))
        reads = later(s.say())  # writes nothing, but may have read a, b and c
        await settle()
        assert not any(task.done() for task in (first, second, reads))
        s.log.commit(2)
        await settle()
        assert (first.done(), second.done(), reads.done()) == (True, False, False)
        s.log.commit()
        await settle()
        assert (await second, await reads) == ("done", "done")

    assert run(scenario).machine.applied == [("a", 0, -1), ("b", 1, -1), ("c", 2, -1)]


def test_a_read_waits_for_what_a_timer_has_written() -> None:
    """Nobody waits for the timer's records, so nothing but the place in the log holds the reply back."""

    async def scenario(s: Setting) -> None:
        s.shard.tick(("session",))
        reads = later(s.say(reply="read"))
        await settle()
        assert not reads.done()
        s.log.commit()
        assert await reads == "read"

    assert run(scenario).machine.applied == [("tick", 0, -1)]


def test_a_reply_that_rests_on_nothing_new_leaves_at_once() -> None:
    async def scenario(s: Setting) -> None:
        assert await s.say() == "done"

    run(scenario)


def test_a_parked_reply_is_answered_when_the_answers_own_records_are_committed() -> None:
    async def scenario(s: Setting) -> None:
        parked = later(s.say(reply=Parked(7)))
        await settle()
        answers = (Answer(7, {"error_code": 0}),)
        by = later(s.say("x", effects=answers))
        await settle()
        assert not parked.done()
        s.log.commit()
        assert await parked == {"error_code": 0}
        assert await by == "done"

    run(scenario)


def test_a_command_may_park_and_answer_itself() -> None:
    async def scenario(s: Setting) -> None:
        parked = later(s.say("x", reply=Parked(1), effects=(Answer(1, {"a": 1}),)))
        await settle()
        s.log.commit()
        assert await parked == {"a": 1}

    run(scenario)


def test_an_answer_to_a_client_that_went_away_is_dropped() -> None:
    async def scenario(s: Setting) -> None:
        parked = later(s.say(reply=Parked(1)))
        await settle()
        parked.cancel()
        await settle()
        assert await s.say(effects=(Answer(1, {}),)) == "done"
        assert s.shard._parked == {}

    run(scenario)


def test_an_append_that_is_refused_loses_the_machine_and_tells_everyone() -> None:
    async def scenario(s: Setting) -> None:
        parked, waits = later(s.say(reply=Parked(1))), later(s.say("a"))
        await settle()
        s.log.refuse = E.kafka_storage_error
        assert await s.say("b") is E.not_coordinator
        assert await parked is E.not_coordinator
        assert await waits is E.not_coordinator
        s.log.refuse = E.none
        assert await s.say("c") is E.not_coordinator, "its machine knows what the log does not"

    s = run(scenario)
    assert s.lost == [E.kafka_storage_error]
    assert len(s.log.batches) == 1


def test_too_few_replicas_in_sync_refuse_writes_and_nothing_else() -> None:
    """Loading anew would answer nobody for as long as it takes, and replay the log at each commit."""

    async def scenario(s: Setting) -> None:
        parked = later(s.say(reply=Parked(1)))
        await settle()
        s.log.refuse = E.not_enough_replicas
        assert await s.say("b") is E.coordinator_not_available
        assert await s.say() == "done", "what needs no record is answered"
        s.log.refuse = E.none
        assert await s.say("c", effects=(Answer(1, {"a": 1}),)) == "done"
        assert await parked == {"a": 1}

    s = run(scenario, commits_at_once=True)
    assert s.lost == []
    assert [text for text, _, _ in s.machine.applied] == ["c"]


def test_a_timer_whose_decision_can_not_be_written_is_due_again() -> None:
    """Or a member whose session ended while too few replicas were in sync would stay in its group for ever."""

    async def scenario(s: Setting) -> None:
        s.shard.open()
        s.log.refuse = E.not_enough_replicas
        await asyncio.sleep(1.7)
        s.log.refuse = E.none
        await asyncio.sleep(2)

    s = run(scenario, commits_at_once=True)
    assert s.machine.ticked == [("first",)] * 3
    assert [text for text, _, _ in s.machine.applied] == ["tick"]


def test_when_leadership_is_lost_everyone_is_sent_to_the_new_coordinator() -> None:
    async def scenario(s: Setting) -> None:
        parked, waits = later(s.say(reply=Parked(1))), later(s.say("a"))
        await settle()
        s.log.resign()
        assert await parked is E.not_coordinator
        assert await waits is E.not_coordinator
        assert await s.say() is E.not_coordinator

    assert run(scenario).lost == [E.not_leader_or_follower]


def test_what_is_not_committed_in_time_is_answered_so_that_the_client_asks_again() -> None:
    async def scenario(s: Setting) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await s.say("a") is E.coordinator_not_available
        assert loop.time() - began == pytest.approx(5.0)
        s.log.commit()
        assert await s.say("b") is E.coordinator_not_available
        s.log.commit()
        assert await s.say() == "done", "slow is not lost"

    assert run(scenario).lost == []


def test_an_illegal_record_dies_before_any_disk() -> None:
    async def scenario(s: Setting) -> None:
        with pytest.raises(AssertionError):
            await s.say("illegal")
        assert s.log.batches == []

    run(scenario)


def test_a_fenced_producer_costs_nobody_else_the_machine() -> None:
    """A zombie's TxnOffsetCommit: that it can't be written is known before anything is applied."""

    async def scenario(s: Setting) -> None:
        s.log.fenced = (zombie := Producer(7, 0),)
        assert await s.say("a", producer=zombie) is E.invalid_producer_epoch
        assert await s.say("b", producer=Producer(7, 1)) == "done"

    setting = run(scenario, commits_at_once=True)
    assert (setting.machine.applied, setting.lost) == ([("b", 0, 7)], [])


def test_a_record_too_large_for_the_log_is_refused_before_anything_is_applied() -> None:
    async def scenario(s: Setting) -> None:
        assert await s.say("x" * 2_000_000) is E.unknown_server_error
        assert await s.say() == "done"

    s = run(scenario)
    assert (s.machine.applied, s.lost) == ([], [])


def test_many_records_are_split_into_batches_that_the_log_takes() -> None:
    lines = [Line("x" * 1_000) for _ in range(2_500)]
    batches = encode(lines, 1, None)
    assert isinstance(batches, list)
    assert len(batches) == 3
    assert all(len(batch) <= BATCH_BYTES_MAX + 1_024 for batch in batches)


def test_records_of_a_producer_are_written_in_its_transaction() -> None:
    async def scenario(s: Setting) -> None:
        await s.say("a", producer=Producer(9, 3))
        code = await s.shard.end_transaction(Producer(9, 3), coordinator_epoch=1, commit=True)
        assert code is E.none

    s = run(scenario, commits_at_once=True)
    assert s.machine.applied == [("a", 0, 9)]
    assert s.machine.ended == [(9, True)]


def test_timers_tick_the_machine_and_what_it_decides_is_written() -> None:
    async def scenario(s: Setting) -> None:
        s.shard.open()
        await s.say(effects=(SetTimer(("b",), 500), SetTimer(("c",), 700)))
        await s.say(effects=(CancelTimer(("c",)),))
        await asyncio.sleep(2)

    s = run(scenario, commits_at_once=True)
    assert s.machine.ticked == [("b",), ("first",)]
    assert [text for text, _, _ in s.machine.applied] == ["tick", "tick"]


def test_a_shard_that_moved_on_is_forgotten_at_once() -> None:
    """Not when its last timer would have been due: a hundred thousand groups are a lot to remember for ten minutes."""

    async def scenario(s: Setting) -> None:
        s.shard.open()
        await s.say(effects=(SetTimer(("far",), 600_000),))
        gone = weakref.ref(s.machine)
        s.shard.close()
        del s.shard, s.machine
        await settle()
        assert gone() is None

    run(scenario, commits_at_once=True)


def test_a_lost_shard_has_no_timers() -> None:
    async def scenario(s: Setting) -> None:
        s.shard.open()
        s.shard.close()
        await asyncio.sleep(2)

    assert run(scenario).machine.ticked == []


def test_of_what_can_not_be_written_it_stays_that_somebody_was_heard() -> None:
    """Members of a group that spoke all the while were thrown out when there were enough replicas again."""

    async def scenario(s: Setting) -> None:
        s.log.refuse = E.not_enough_replicas
        timers = SetTimer(("heard",), 1_000, heard=True), SetTimer(("other",), 1_000)
        assert await s.say("a", effects=timers) is E.coordinator_not_available
        s.log.refuse = E.none
        await asyncio.sleep(1.5)

    assert run(scenario, commits_at_once=True).machine.ticked == [("heard",)]


def test_what_makes_sense_in_one_batch_only_is_not_split() -> None:
    async def scenario(s: Setting) -> None:
        lines = ["x" * 600_000, "y" * 600_000]
        assert await s.say(*lines, whole=True) is E.unknown_server_error
        assert await s.say(*lines[:1], whole=True) == "done"
        assert await s.say(*lines) == "done"

    assert len(run(scenario, commits_at_once=True).machine.applied) == 3
