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
            gate: Any = SimpleNamespace(execute=execute)
            session = BrokerSession(
                env, gate, image, ME,
                rack=None, features={}, heartbeat_s=0.5, timeout_s=3.0,
                may_be_decided=lambda: True, on_registered=lambda: led.append(env.clock.steady()),
                disk=lambda: None, lacking=lambda: None, failed_logs=list, untold_failures=list,
            )  # fmt: skip
            registering = asyncio.ensure_future(session._register())
            await asyncio.sleep(5)
            assert not led
            image.brokers[ME] = known(7)
            await asyncio.wait_for(registering, 1)
            assert led

        world.run(world.on(env, scenario()))
