"""The same quorum on the kernel's own files: a simulation says nothing about those."""

import asyncio
import pathlib

from fencepost.cluster.base.real_env import RealEnv
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ConfigType
from fencepost.cluster.metadata.machine import Applied, MetadataMachine
from fencepost.cluster.metadata.records import ConfigsChanged
from fencepost.cluster.quorum.raft_shell import Quorum


def test_what_was_agreed_is_there_after_a_stop_and_after_a_torn_write(
    tmp_path: pathlib.Path,
) -> None:
    folder = str(tmp_path / "quorum")

    async def life(name: str, *, stop: bool) -> dict[str, str]:
        env, machine = RealEnv(), MetadataMachine()
        quorum = Quorum(env, folder, machine, 1, {1: ("a", 1)})
        await quorum.start()
        await quorum.wait_ready()
        found = dict(machine.image.config(ConfigType.BROKER, ""))
        change = ConfigsChanged(resource_type=ConfigType.BROKER, name="", changes={name: "1"})
        results = await asyncio.gather(*(quorum.propose(encode([change])) for _ in range(50)))
        assert all(isinstance(result, Applied) for result in results)
        if stop:
            await quorum.stop()
        else:
            await env.tasks.cancel_all()
        return found

    assert asyncio.run(life("a", stop=True)) == {}
    assert asyncio.run(life("b", stop=False)) == {"a": "1"}
    (segment,) = tmp_path.glob("quorum/*.journal")
    with segment.open("ab") as file:
        file.write(b"\xf5FPG half of a group")
    assert asyncio.run(life("c", stop=True)) == {"a": "1", "b": "1"}
    assert asyncio.run(life("d", stop=True)) == {"a": "1", "b": "1", "c": "1"}
