"""A broker's registration, as its own node sees it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId
from fencepost.cluster.controller.commands import BrokerHeartbeat, RegisterBroker, ReportDisk
from fencepost.cluster.controller.gate import Unreadable
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.node.session import UNKNOWN_S, BrokerSession

ME = BrokerId(2)


def known(broker_epoch: int) -> Any:
    return SimpleNamespace(broker_id=ME, broker_epoch=broker_epoch, fenced=True)


def session_of(
    env: Any,
    execute: Any,
    image: ClusterImage,
    on_registered: Any,
    is_disk_full: Callable[[], bool] = lambda: False,
) -> BrokerSession:
    gate: Any = SimpleNamespace(execute=execute)
    return BrokerSession(
        env, gate, image, ME,
        rack=None, features={}, heartbeat_s=0.5, timeout_s=3.0,
        may_be_decided=lambda: True, on_registered=on_registered,
        disk=lambda: None, lacking=lambda: None, failed_logs=list, untold_failures=list,
        is_disk_full=is_disk_full,
    )  # fmt: skip


def test_nothing_is_led_before_our_own_image_has_our_registration() -> None:
    """It gives us what the process before this one led. Whoever registered us does not wait for it for ever."""
    led: list[float] = []

    async def execute(command: Any, **_: Any) -> Any:
        assert isinstance(command, RegisterBroker)
        return SimpleNamespace(
            error_code=ErrorCode.none, error_message=None, broker_epoch=BrokerEpoch(7)
        )

    with World(1) as world:
        env, image = world.node("a"), ClusterImage()
        image.brokers[ME] = known(5)

        async def scenario() -> None:
            session = session_of(env, execute, image, lambda: led.append(env.clock.steady()))
            registering = asyncio.ensure_future(session._register())
            await asyncio.sleep(5)
            assert not led
            image.brokers[ME] = known(7)
            await asyncio.wait_for(registering, 1)
            assert led

        world.run(world.on(env, scenario()))


def test_who_is_taken_off_the_list_before_its_image_knows_it_registers_again() -> None:
    """1. It is registered, as fenced. 2. A person takes it off the list: it may be, as nobody of it serves yet. 3. Its image
    gets both at once. It waited for the first for ever, without a heartbeat."""
    epochs = [BrokerEpoch(7), BrokerEpoch(9)]

    async def execute(command: Any, **_: Any) -> Any:
        assert isinstance(command, RegisterBroker)
        return SimpleNamespace(
            error_code=ErrorCode.none, error_message=None, broker_epoch=epochs.pop(0)
        )

    with World(1) as world:
        env, image = world.node("a"), ClusterImage()
        led: list[int] = []

        async def scenario() -> None:
            session = session_of(env, execute, image, lambda: led.append(session.broker_epoch))
            registering = asyncio.ensure_future(session._register())
            await asyncio.sleep(1)
            image.version = 8  # where it is off the list
            await asyncio.sleep(1)
            assert (epochs, led) == ([], [])
            image.version, image.brokers[ME] = 9, known(9)
            await asyncio.wait_for(registering, 1)
            assert led == [9]

        world.run(world.on(env, scenario()))


def test_a_full_disk_is_told_with_each_heartbeat_and_once_more_when_there_is_room() -> None:
    """What is lost on its way is told again. A controller that does not know what that is is spared, and hears heartbeats."""
    said: list[bool] = []
    refuses: list[Trouble] = []
    beats: list[float] = []
    full = [False]

    async def execute(command: Any, **_: Any) -> Any:
        if isinstance(command, BrokerHeartbeat):
            beats.append(env.clock.steady())
            return SimpleNamespace(error_code=ErrorCode.none, is_fenced=False)
        assert isinstance(command, ReportDisk)
        said.append(command.is_full)
        if refuses:
            raise refuses[0]
        return SimpleNamespace(error_code=ErrorCode.none)

    async def scenario() -> None:
        session = session_of(env, execute, ClusterImage(), lambda: None, lambda: full[0])
        living = env.tasks.spawn(session._live(), name="live")
        await asyncio.sleep(1.1)
        assert said == []
        full[0] = True
        await asyncio.sleep(1.0)
        assert said == [True, True]
        full[0] = False
        refuses.append(Trouble("nobody leads", Outcome.REFUSED))
        await asyncio.sleep(1.0)
        refuses.clear()
        await asyncio.sleep(2.0)
        assert said == [True, True, False, False, False]
        full[0] = True
        refuses.append(Unreadable("ReportDisk, which this version of Fencepost does not know"))
        await asyncio.sleep(UNKNOWN_S - 1)
        assert said[5:] == [True]
        assert len(beats) > 2 * UNKNOWN_S
        await asyncio.sleep(2.0)
        assert said[5:] == [True, True]
        living.cancel()

    with World(1) as world:
        env = world.node("a")
        world.run(world.on(env, scenario()))
