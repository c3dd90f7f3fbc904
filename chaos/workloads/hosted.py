"""One process of a real run that hosts clients of the simulator, as they are, on the real world's clock and network.

    python -m fencepost.chaos.workloads.hosted --workload pipeline --slot 3 --life 1 --bootstrap … --notes pipeline-3.1.jsonl

Which ones a place has stands in `hosted_cast.py`. The process may be killed at any instant: its notes are lines of `txn_history`,
and of a number the last line counts. A client that was told what it must never be told says so (`die`) and ends its process.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env

from ..checkers.txn_history import Txn
from .hosted_book import NotedBook
from .hosted_cast import CASTS
from .hosted_roles import ROLES, Actor, Host
from .txn_answers import BrokenPromise
from .txn_process import SLEEPS_AT_COMMIT

BROKEN: Final = 1  # the exit code of who was told what must never be


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="One process that hosts clients of the simulator.")
    made.add_argument("--workload", choices=list(CASTS), required=True)
    made.add_argument("--bootstrap", required=True)
    made.add_argument("--slot", type=int, required=True, help="below 64; unique")
    made.add_argument("--life", type=int, required=True, help="how often this slot was filled")
    made.add_argument("--notes", type=Path, required=True)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--rate", type=float, default=10.0, help="operations a second, each")
    made.add_argument("--timeout-ms", type=int, default=6_000, help="of a transaction")
    made.add_argument("--via", default="assign,subscribe", help="either or both")
    made.add_argument("--partitions", type=int, default=8, help="of each topic")
    made.add_argument("--clients", type=int, default=5, help="places that there are")
    made.add_argument("--target", default="processes", help="what the brokers are")
    made.add_argument("--admin", default="", help="addresses of admin doors, with commas between")
    made.add_argument(
        "--transactional-id", dest="taken", default="", help="another's: this is its twin"
    )
    return made


async def host(chosen: argparse.Namespace, book: NotedBook) -> None:
    rng = random.Random(f"{chosen.seed}-{chosen.slot}-{chosen.life}")
    async with open_env(log=StreamLog(levels="error"), rng=rng) as env:
        place, roles = whose(chosen)
        home = Host(env, chosen, book, place, chosen.taken)
        actors = [ROLES[role](home) for role in roles]

        def stop() -> None:
            for each in actors:
                each.stopping = True

        def sleep() -> None:
            book.is_to_sleep = True

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop)
        loop.add_signal_handler(SLEEPS_AT_COMMIT, sleep)
        async with asyncio.TaskGroup() as group:
            for role, actor in zip(roles, actors, strict=True):
                name = f"{role}-{chosen.slot}.{chosen.life}"
                group.create_task(_live(actor, name, book), name=name)


def whose(chosen: argparse.Namespace) -> tuple[int, Sequence[str]]:
    """The place whose part this process plays, and the roles of it: a twin has another's, which its id names."""
    cast = CASTS[chosen.workload]
    if not chosen.taken:
        return chosen.slot, cast.of(chosen.slot, chosen.via.split(","))
    role, _, place = chosen.taken.partition(".")[0].rpartition("-")
    return int(place), (role,)


async def _live(actor: Actor, name: str, book: NotedBook) -> None:
    try:
        await actor.run()
    except* BrokenPromise as group:
        for broken in _each(group):
            book.close(Txn("die", "info", name, why=str(broken)))
        raise


def _each(group: BaseExceptionGroup[BrokenPromise]) -> Iterator[BrokenPromise]:
    """An actor may be several clients, each with a task of its own."""
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _each(each)
        else:
            yield each


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    with chosen.notes.open("a") as notes:
        broken: list[str] = []
        try:
            asyncio.run(host(chosen, NotedBook(notes, chosen.slot)))
        except* BrokenPromise as group:
            broken += map(str, _each(group))
    for each in broken:
        sys.stderr.write(f"{each}\n")
    return BROKEN if broken else 0


if __name__ == "__main__":
    sys.exit(main())
