"""A journal that goes through a script on a simulated disk, and what it may hold after a crash."""

from collections.abc import Sequence

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.quorum.journal import Journal
from fencepost.cluster.quorum.segment_format import Entry
from fencepost.cluster.quorum.vote_file import VoteFile

FOLDER = "/data/quorum"
Step = tuple[str, int]


def opened(env: SimEnv) -> Journal:
    return Journal.open(env, FOLDER, VoteFile(env, f"{FOLDER}/vote"))


class Script:
    """Steps: ("add", n) entries; ("cut", n) entries off the end; ("drop", n) off the head; ("sync", 0)."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.durable: list[Entry] = []
        self.attempted: list[list[Entry]] = []  # what was in memory at each try since
        self.term = 1
        self.made = 0

    def now(self, journal: Journal) -> list[Entry]:
        return list(journal[0:])

    async def run(self, env: SimEnv) -> None:
        journal = opened(env)
        for kind, count in self.steps:
            if kind == "add":
                for _ in range(count):
                    self.made += 1
                    last = journal[-1].idx if len(journal) else 0
                    journal.add(b"%d" % self.made * 10, last + 1, self.term)
            elif kind == "cut" and len(journal) > count + 1:
                journal.deleteEntriesFrom(len(journal) - count)
                self.term += 1
            elif kind == "drop" and len(journal) > count + 1:
                await self.sync(journal)
                journal.deleteEntriesTo(count)
            elif kind == "sync":
                await self.sync(journal)
        await self.sync(journal)
        await journal.close()

    async def sync(self, journal: Journal) -> None:
        self.attempted = [self.now(journal)]
        while journal.dirty:
            await journal.make_durable()
        self.durable, self.attempted = self.now(journal), []


def after(env: SimEnv, script: Script) -> None:
    """What a new process finds is what was durable, or what it was about to become; never anything between."""
    found = list(opened(env)[0:])
    allowed = [script.durable, *script.attempted]
    heads = [state[0].idx if state else 1 for state in allowed]
    # Entries before the first one that is needed may still be there.
    seen = [[entry for entry in found if entry.idx >= head] for head in heads]
    assert any(mine == state for mine, state in zip(seen, allowed, strict=True)), (found, allowed)


def crash_at_every_operation(seed: int, steps: Sequence[Step], *, kill: bool) -> int:
    """Returns how many operations there are."""
    for operation in range(1, 10_000):
        with World(seed=f"{seed}/{operation}") as world:
            script = Script(steps)
            env = world.node("a")
            world.crash_at_disk_op("a", operation, kill=kill)
            try:
                world.run(world.on(env, script.run(env)))
            except NodeLost:
                after(world.restart("a"), script)
            else:
                return operation
    raise AssertionError("the script does not end")
