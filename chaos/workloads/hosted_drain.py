"""Waits until what was left is worked off: every input that groups have to consume, every half message.

    python -m fencepost.chaos.workloads.hosted_drain --bootstrap … --wanted drain.json --seconds 60

`drain.json` names groups, each with its partitions. Exit code 0: nothing is left; 3: the time was over before, and the last line
says what is left.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env

from ..checkers.txn_history import Txn
from ..harness.asking import addresses_of
from .admin_doors import ask_http
from .cluster_client import ClusterClient
from .txn_added import Doors
from .txn_answers import Partition
from .txn_keys import key_of
from .txn_reader import CommittedReader, GroupPositions

LEFT: Final = 3
NAME: Final = "drain"
PAUSE_S: Final = 0.3
SHOWN: Final = 5


class Drain:
    """`left` says what is not worked off yet, as far as that was found out."""

    def __init__(
        self,
        client: ClusterClient,
        groups: Mapping[str, Sequence[Partition]],
        doors: Doors | None = None,
    ) -> None:
        self.client = client
        self.groups = groups
        self.doors = doors
        self.left = "nobody has answered"

    async def run(self) -> None:
        for group, places in self.groups.items():
            while self._say(group, await self._rest(group, places)):
                await self.client.env.clock.sleep(PAUSE_S)
        while self.doors is not None and not await self._all_decided(self.doors):
            await self.client.env.clock.sleep(PAUSE_S)
        self.left = ""

    async def _all_decided(self, doors: Doors) -> bool:
        _, fields = await doors.until("GET", "/v1/checks")
        away, halves = fields["nodes_not_reached"], fields["half_messages"]
        unled = fields[
            "partitions_without_a_coordinator"
        ]  # it may have some, and is asked by nobody
        names = ", ".join(f"{each['half_id']} ({each['state']})" for each in halves[:SHOWN])
        self.left = f"{len(halves)} half messages: {names}; nodes not reached: {away}"
        self.left += f"; partitions without a coordinator: {unled}"
        return not away and not unled and not halves

    async def _rest(self, group: str, places: Sequence[Partition]) -> list[str]:
        """What is there behind where the group has committed. What stands behind a transaction that is open yet, as of a client
        that was killed, nobody sees before that has had its time: it may be left all the same."""
        reader = CommittedReader(self.client)
        found = await GroupPositions(self.client, group).find(places)
        reader.positions = {place: max(0, at) for place, (at, _) in found.items()}
        rest = Txn("read", "ok", NAME)
        await reader.read_all(places, rest)
        hidden = [each for each in places if reader.stable[each] < reader.ends[each]]
        return [f"{each.key} at {each.offset}" for each in rest.polls] + [
            f"{key_of(*each)} from {reader.stable[each]}, which is open, to {reader.ends[each]}"
            for each in hidden
        ]

    def _say(self, group: str, rest: Sequence[str]) -> bool:
        self.left = f"{len(rest)} inputs of {group}: {', '.join(rest[:SHOWN])}"
        return bool(rest)


async def drain(chosen: argparse.Namespace) -> str:
    """What is left, at the end."""
    wanted: dict[str, Any] = json.loads(chosen.wanted.read_text())
    groups = {
        group: [(str(topic), int(partition)) for topic, partition in places]
        for group, places in wanted["groups"].items()
    }
    async with open_env(log=StreamLog(levels="error")) as env:
        client = ClusterClient(env, addresses_of(chosen.bootstrap), name=NAME)
        doors = Doors(env, chosen.admin.split(","), ask_http) if wanted["halves"] else None
        return await left_of(Drain(client, groups, doors), client, chosen.seconds)


class Wait(Protocol):
    """`left` is what it still waits for."""

    left: str

    async def run(self) -> None: ...


async def left_of(wait: Wait, client: ClusterClient, seconds: float) -> str:
    """When it is over, or the time is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait.run()
    await client.close()
    return wait.left


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Waits until what was left is worked off.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--wanted", type=Path, required=True)
    parser.add_argument("--admin", default="", help="addresses of admin doors")
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args(arguments)
    left = asyncio.run(drain(chosen))
    if left:
        sys.stdout.write(f"{left}\n")
    return LEFT if left else 0


if __name__ == "__main__":
    sys.exit(main())
