"""Whom a fault strikes: who leads, coordinates and controls now, asked of nodes that can answer."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

from ..harness import asking
from ..harness.asking import Address, PartitionView
from ..harness.local_cluster import wait_for
from .system import System

TARGETS: Final = ("one", "leaders", "coordinator", "controller", "minority", "majority", "all")
GROUP: Final = 0  # a key type of FindCoordinator
FOUND_S: Final = 10.0  # for a cluster to have a leader again


class Asking:
    """One run's questions. `topics` are those of its load, as are ids and groups."""

    def __init__(
        self,
        system: System,
        *,
        topics: Sequence[str] = (),
        transactional_ids: Sequence[str] = (),
        groups: Sequence[str] = (),
    ) -> None:
        self.system = system
        self.topics = tuple(topics)
        self.transactional_ids = tuple(transactional_ids)
        self.groups = tuple(groups)

    def addresses(self) -> list[Address]:
        """Of those that can answer."""
        doors = self.system.doors
        return [doors[node] for node in self.system.nodes if self.system.is_up(node)]

    def partitions(self) -> list[PartitionView]:
        """Of the load's topics; of all, if none is named."""
        found = asking.partitions(self.addresses())
        return [each for each in found if not self.topics or each.topic in self.topics]

    def leaders(self) -> dict[str, int]:
        return {f"{each.topic}-{each.partition}": each.leader for each in self.partitions()}

    def isr(self) -> dict[str, list[int]]:
        return {f"{each.topic}-{each.partition}": sorted(each.isr) for each in self.partitions()}

    def controller(self) -> int:
        """-1 while there is none."""
        return asking.quorum_leader(self.addresses())

    def coordinators(self) -> list[int]:
        """Of the load's transactional ids and groups, each once; nobody while there is none."""
        found = [asking.coordinator_of(self.addresses(), each) for each in self.transactional_ids]
        found += [_coordinator_of_group(self.addresses(), each) for each in self.groups]
        return sorted({node for node in found if node in self.system.nodes})

    def in_sync(self) -> bool:
        """Whether all replicas of all partitions are, those of the internal topics too."""
        found = asking.partitions(self.addresses())
        return bool(found) and all(
            each.leader >= 0 and set(each.isr) == set(each.replicas) for each in found
        )

    def wait_in_sync(self, wait_s: float) -> float:
        """Seconds; TimeoutError when somebody stays behind."""
        return wait_for("all replicas in sync", self.in_sync, wait_s)

    def wait_held_by_others(self, node: int, wait_s: float) -> float:
        """Until of each partition somebody else has all; TimeoutError when nobody has."""

        def is_held() -> bool:
            found = asking.partitions(self.addresses())
            return bool(found) and all(set(each.isr) - {node} for each in found)

        return wait_for(f"others that have all that node {node} has", is_held, wait_s)

    def seen(self) -> dict[str, Any]:
        """One line of seen.jsonl, as far as somebody answers; what nobody says is left out."""
        line: dict[str, Any] = {}
        try:
            found = self.partitions()
            line["leaders"] = {f"{e.topic}-{e.partition}": e.leader for e in found}
            line["isr"] = {f"{e.topic}-{e.partition}": sorted(e.isr) for e in found}
            line["controller"] = self.controller()
        except asking.NobodyAnswers:
            pass
        return line

    # -- chosen by chance ------------------------------------------------------------------------

    def choose(self, target: str, rng: random.Random, among: Sequence[int]) -> list[int]:
        """Nodes of `among`; none when nobody of the kind is to be found there."""
        count = len(self.system.nodes)
        sizes = {"one": 1, "minority": (count - 1) // 2, "majority": count // 2 + 1, "all": count}
        if target in sizes:
            size = sizes[target]
            return sorted(rng.sample(list(among), size)) if size <= len(among) else []
        found = self._known(self._of(target))
        fitting = [node for node in found if node in among]
        return [rng.choice(fitting)] if fitting else []

    def _of(self, target: str) -> Callable[[], list[int]]:
        if target == "leaders":
            return lambda: sorted(set(self.leaders().values()) & set(self.system.nodes))
        if target == "coordinator":
            return self.coordinators
        assert target == "controller", f"{target}: allowed are {', '.join(TARGETS)}"
        return lambda: [node for node in [self.controller()] if node in self.system.nodes]

    def _known(self, ask: Callable[[], list[int]]) -> list[int]:
        found: list[int] = []

        def known() -> bool:
            found[:] = ask()
            return bool(found)

        try:
            wait_for("somebody of the kind", known, FOUND_S)
        except TimeoutError:
            return []
        return found


def _coordinator_of_group(addresses: Sequence[Address], group: str) -> int:
    """-1 while there is none."""

    async def ask(client: WireClient) -> int:
        reply = await client.request(
            ApiKey.find_coordinator, asking.FIND_ONE, key=group, key_type=GROUP
        )
        return int(reply.node_id) if reply.error_code is ErrorCode.none else -1

    return asking.ask_any(addresses, ask)
