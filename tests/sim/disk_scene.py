"""A test inside a simulated world, and a file of its disk whose name is durable."""

from typing import Any

from fencepost.chaos.sim.world import World


def in_world(test: Any) -> Any:
    def run() -> None:
        with World(5) as world:
            world.run(test(world))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def opened(env: Any, path: str = "/data/log") -> Any:
    file = env.disk.open(path, create=True)
    env.disk.sync_folder("/data")
    return file


async def save(env: Any) -> None:
    """A checkpoint the right way, then one more."""
    for content in (b"first", b"second"):
        env.disk.replace("/data/checkpoint", content)
