"""The stories of tests/transcripts/replication: three nodes, told step by step.

A log is shown as its values with their leader epochs, and a bar where the high watermark is: `a.0 b.0 | c.1`.
"""

from asyncio import sleep
from pathlib import Path

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import read_records
from fencepost.replication.partition import Appended, Partition
from replica_cluster import Cluster, log_bytes
from replica_helpers import ORDERS, batch
from support.transcript import check

STORIES = sorted((Path(__file__).parents[1] / "transcripts" / "replication").glob("*.txt"))
TOLD = {"truncated", "logs_parted", "isr_shrinks", "following_stopped", "disk_has_space_again"}

UNTOLD = {"partition", "high_watermark"}


def members(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(each)) for each in text.split(","))


class Telling:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world, replica_lag_time_max_ms="5000")
        self.heard: dict[str, int] = {}
        self.waiting: list[tuple[str, Appended, Partition]] = []
        self.isr: tuple[int, ...] = ()
        self.lines: list[str] = []
        world.run(self.cluster.start())

    def run(self, command: str) -> list[str]:
        self.lines = []
        verb, *words = command.split()
        self.world.run(getattr(self, f"on_{verb}")(*words))
        return self.lines

    def say(self, text: str) -> None:
        self.lines.append(text)

    def tell_events(self) -> None:
        """What nodes logged, changes of the ISR, and what became of writes."""
        for node in (1, 2, 3):
            events = self.world.machine(f"node-{node}").events
            for _, name, fields in events[self.heard.get(str(node), 0) :]:
                if name in TOLD:
                    told = " ".join(f"{k}={v}" for k, v in fields.items() if k not in UNTOLD)
                    self.say(f"node {node}  {name}  {told}")
            self.heard[str(node)] = len(events)
        if self.cluster.topics and self.cluster.state().isr != self.isr:
            self.isr = self.cluster.state().isr
            self.say("isr " + ",".join(str(each) for each in sorted(self.isr)))
        for entry in list(self.waiting):
            value, done, partition = entry
            outcome = partition.closed or partition.machine.outcome_of(done.last_offset)
            if outcome is not None:
                self.waiting.remove(entry)
                self.say(f"{value}  {outcome.name}")

    # -- commands --------------------------------------------------------------------------------------

    async def on_topic(self, *settings: str) -> None:
        """topic [NAME=VALUE ...]: orders-0 on nodes 1, 2, 3, led by 1"""
        self.cluster.create(**dict(each.split("=") for each in settings))
        self.isr = (1, 2, 3)

    async def on_write(self, node: str, *values: str) -> None:
        """write NODE VALUE ...: with acks=all; told when it is known"""
        for value in values:
            done = self.cluster[int(node)].produce(batch(value))
            if isinstance(done, Appended):
                self.waiting.append((value, done, self.cluster[int(node)].partition()))
            else:
                self.say(f"{value}  {done.error.name}")
        await self.on_wait("0.3")

    async def on_append(self, node: str, *values: str) -> None:
        """append NODE VALUE ...: with acks=1"""
        for value in values:
            self.cluster[int(node)].append(batch(value))
        await self.on_wait("0.3")

    async def on_load(self, node: str, count: str, pause_ms: str) -> None:
        """load NODE COUNT PAUSE: so many writes with acks=all, so many milliseconds between them"""
        done = None
        for number in range(int(count)):
            done = self.cluster[int(node)].produce(batch(f"load{number}"))
            assert isinstance(done, Appended), done
            await sleep(int(pause_ms) / 1000)
        assert isinstance(done, Appended)
        await self.cluster[int(node)].partition().committed(done.last_offset)
        self.tell_events()

    async def on_wait(self, seconds: str) -> None:
        await sleep(float(seconds))
        self.tell_events()

    async def on_isolate(self, node: str) -> None:
        """From the other nodes and from the metadata log."""
        self.world.net.isolate(f"node-{node}")
        self.cluster.deaf.add(int(node))

    async def on_heal(self) -> None:
        self.world.net.heal_all()
        for node in sorted(self.cluster.deaf):
            self.cluster.deaf.discard(node)
            self.cluster.spread(node)
        await self.on_wait("1.0")

    async def on_pause(self, node: str) -> None:
        self.world.pause(f"node-{node}")

    async def on_resume(self, node: str) -> None:
        """It goes on before it hears what was decided meanwhile."""
        self.cluster.deaf.add(int(node))
        self.world.resume(f"node-{node}")

    async def on_hear(self, node: str) -> None:
        self.cluster.deaf.discard(int(node))
        self.cluster.spread(int(node))
        await self.on_wait("1.0")

    async def on_kill(self, node: str) -> None:
        self.cluster.kill(int(node))

    async def on_start(self, node: str) -> None:
        await self.cluster.restart(int(node))
        await self.on_wait("1.0")

    async def on_elect(self, node: str, isr: str) -> None:
        """elect NODE ISR: as the controller does"""
        self.cluster.elect(int(node), isr=members(isr))
        self.tell_events()
        await sleep(0.3)

    async def on_show(self, *nodes: str) -> None:
        """show [NODE ...]"""
        for node in nodes or ("1", "2", "3"):
            self.say(f"node {node}  " + self.shown(self.cluster[int(node)].partition(ORDERS)))

    def shown(self, partition: Partition) -> str:
        parts, data, position = [], log_bytes(partition), 0
        where = [partition.high_watermark]
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            epoch = int.from_bytes(data[position + 12 : position + 16], "big")
            for record in read_records(data[position : position + size]):
                if where and record.offset >= where[0]:
                    parts.append("|")
                    where.clear()
                parts.append(f"{(record.value or b'').decode()}.{epoch}")
            position += size
        role = "leads" if partition.is_leader else "follows"
        return " ".join([role, *parts, *("|" for _ in where)])

    async def on_count(self) -> None:
        """How long each log is, and up to where it is committed."""
        for node in (1, 2, 3):
            partition = self.cluster[node].partition()
            self.say(f"node {node}  {partition.log_end_offset} {partition.high_watermark}")


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_story_is_still_true(story: Path, request: pytest.FixtureRequest) -> None:
    with World(story.stem) as world:
        check(story, Telling(world).run, request)
