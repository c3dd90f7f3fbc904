"""A broker's registration, as its own node sees it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId
from fencepost.cluster.controller.commands import RegisterBroker
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.node.session import BrokerSession

ME = BrokerId(2)


def known(broker_epoch: int) -> Any:
    return SimpleNamespace(broker_id=ME, broker_epoch=broker_epoch, fenced=True)


def session_of(env: Any, execute: Any, image: ClusterImage, on_registered: Any) -> BrokerSession:
    gate: Any = SimpleNamespace(execute=execute)
    return BrokerSession(
        env, gate, image, ME,
        rack=None, features={}, heartbeat_s=0.5, timeout_s=3.0,
        may_be_decided=lambda: True, on_registered=on_registered,
        disk=lambda: None, lacking=lambda: None, failed_logs=list, untold_failures=list,
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
