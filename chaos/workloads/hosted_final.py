"""The pass after all faults, where the simulator's readers know more than others do: of tables, of topics that come and go, of settings.

    python -m fencepost.chaos.workloads.hosted_final --workload churn --bootstrap … --wanted wanted.json --notes final.jsonl --seconds 200

`wanted.json` is that of `queue_final.py`, and so are the exit codes: 0 all was reached, 3 the time was over before, and the last line
says what is missing.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env

from ..checkers import settings
from ..checkers.history import FINAL
from ..checkers.txn_history import Txn
from ..harness.asking import addresses_of
from .churn import living
from .churn_clients import LifeFollower
from .cluster_client import READ_COMMITTED, ClusterClient, end_offset
from .hosted_book import NotedBook, NotedClient
from .hosted_cast import CASTS
from .hosted_drain import left_of
from .hosted_scenes import COMING_AND_GOING, followed, idle_and_used, knobs_for
from .queue_final import MISSED
from .tuner import Tuner
from .txn_answers import Partition
from .txn_follower import Follower
from .txn_keys import key_of, life_key
from .txn_process import SLOTS_MAX

PAUSE_S: Final = 0.2
SHOWN: Final = 5


class FinalPass:
    """`left` says what is not reached yet, as far as that is known."""

    def __init__(self, client: ClusterClient, book: NotedBook, chosen: argparse.Namespace) -> None:
        self.client = client
        self.book = book
        self.cast = CASTS[chosen.workload]
        self.partitions: int = chosen.partitions
        self.workload: str = chosen.workload
        self.target: str = chosen.target
        self.ends: Mapping[str, int] = json.loads(chosen.wanted.read_text())["keys"]
        self.left = "nobody has answered"

    async def run(self) -> None:
        await PASSES[self.workload](self)
        self.left = ""

    # -- what is there -------------------------------------------------------------------------------

    async def tables(self) -> None:
        places = followed(self.cast, self.workload, self.partitions)
        await self._until_stable(places)
        reader = Follower(self.client, self.book, places)

        def at() -> dict[str, int]:
            return {key_of(*place): there for place, there in reader.reader.positions.items()}

        await self._until_reached(reader.read_on, at)

    async def lives(self) -> None:
        stays = [(self.cast.topics[-1], partition) for partition in range(self.partitions)]
        await self._until_stable(stays)
        found = await self._living()
        there = [topic for topic, its in found.items() if its is not None]
        await self._until_stable(
            [(topic, at) for topic in there for at in range(self.client.partitions(topic))]
        )
        reader = LifeFollower(self.client, self.book, COMING_AND_GOING, stays)

        async def read_on() -> None:
            nonlocal found
            found = await reader.read_on()

        def at() -> dict[str, int]:
            here = {key_of(*place): end for place, end in reader.steady.positions.items()}
            return here | {
                life_key(topic, found[topic], partition): end
                for (topic, partition), end in reader.reader.positions.items()
            }

        await self._until_reached(read_on, at)
        shown = Txn("shows", "ok", FINAL)
        shown.named = found
        self.book.close(shown)

    async def settings(self) -> None:
        idle, used = idle_and_used(self.cast)
        tuner = Tuner(self.client, used, idle, knobs_for(self.target))
        for host, port in self.client.bootstrap:
            self.left = f"{host}:{port} has not shown its settings"
            found = await tuner.find((host, port))
            shown = Txn("shows", "ok", f"{host}:{port}")
            shown.named = {settings.key_of(name): found[name].own for name in found}
            self.book.close(shown)

    # -- until all of it is known ----------------------------------------------------------------------

    async def _until_stable(self, places: Iterable[Partition]) -> None:
        """Until no transaction is open in them any more."""
        waiting = list(places)
        while waiting := [place for place in waiting if not await self._is_stable(place)]:
            names = ", ".join(key_of(*place) for place in waiting[:SHOWN])
            self.left = f"transactions are open, or nobody answers, in {names}"
            await self.client.env.clock.sleep(PAUSE_S)

    async def _is_stable(self, place: Partition) -> bool:
        stable = end = leader = None
        with contextlib.suppress(Trouble):
            leader = await self.client.leader_now(*place)
            stable = await end_offset(leader, *place, isolation_level=READ_COMMITTED)
            end = await end_offset(leader, *place)
        if leader is not None and end is None:  # it does not say: another one may lead by now
            self.client.forget(*place, leader)
        return stable is not None and stable == end

    async def _until_reached(
        self, read_on: Callable[[], Awaitable[object]], at: Callable[[], Mapping[str, int]]
    ) -> None:
        """What anybody was told of, of all that is read here."""
        while True:
            await read_on()
            there = at()
            short = {
                key: end for key, end in self.ends.items() if key in there and there[key] < end
            }
            if not short:
                return
            self.left = f"read up to {there}, and not up to {short}"
            await self.client.env.clock.sleep(PAUSE_S)

    async def _living(self) -> dict[str, str | None]:
        while True:
            try:
                found = await living(self.client, COMING_AND_GOING)
                if all([await self.client.refresh(each) for each in found if found[each]]):
                    return {
                        topic: None if each is None else str(each) for topic, each in found.items()
                    }
            except Trouble:
                pass
            self.left = f"nobody says which there are of {COMING_AND_GOING}"
            await self.client.env.clock.sleep(PAUSE_S)


PASSES: Final[Mapping[str, Callable[[FinalPass], Awaitable[None]]]] = {
    "compacted": FinalPass.tables,
    "churn": FinalPass.lives,
    "tuned": FinalPass.settings,
}


async def final_pass(chosen: argparse.Namespace, book: NotedBook) -> str:
    """What is left, at the end."""
    async with open_env(log=StreamLog(levels="error")) as env:
        client = NotedClient(env, addresses_of(chosen.bootstrap), name=FINAL, book=book)
        return await left_of(FinalPass(client, book, chosen), client, chosen.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The pass after all faults, by hosted readers.")
    parser.add_argument("--workload", choices=list(PASSES), required=True)
    parser.add_argument("--target", default="processes")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--wanted", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0)
    chosen = parser.parse_args(arguments)
    with chosen.notes.open("a") as notes:
        left = asyncio.run(final_pass(chosen, NotedBook(notes, SLOTS_MAX - 1)))
    if left:
        sys.stdout.write(f"{left}\n")
    return MISSED if left else 0


if __name__ == "__main__":
    sys.exit(main())
