"""What one run of one seed is to be: all that it depends on, and the command that brings it back.

INVARIANT  a plan and the commit are all that a run depends on: equal plans give equal traces.
PREVENTS   a failure that is told with its seed, and needs something that nobody wrote down.
PROVED BY  tests/chaos/test_plan.py::test_the_command_of_a_plan_is_read_back_as_the_same_plan
"""

import random
from dataclasses import dataclass, field, fields
from typing import Final

Words = tuple[str, ...]
CLIENTS: Final = "clients"
# What a command line says of a plan: field -> option. The seed and the campaign come first.
OPTIONS: Final[dict[str, str]] = {
    "faults": "--faults",
    "keep_faults": "--keep-faults",
    "keep_clients": "--keep-clients",
    "seconds": "--seconds",
    "until_s": "--until",
    "nodes": "--nodes",
    "at_once": "--at-once",
    "workloads": "--workloads",
    "protocol": "--protocol",
    "config": "--config",
    "planted": "--planted",
    "watch": "--watch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is empty or 0 is the campaign's, or the seed's, to say."""

    campaign: str
    seed: int
    seconds: float = 0.0  # how long faults strike
    faults: Words = ()  # which kinds
    keep_faults: tuple[int, ...] | None = None  # by number; None: all
    keep_clients: Words = ()  # by name; empty: all
    until_s: float = 0.0  # no fault begins from this virtual time on
    nodes: int = 0
    at_once: int = 0  # faults at one time
    workloads: Words = ()
    protocol: str = ""
    config: Words = ()  # settings of every node
    planted: str = ""
    watch: str = ""  # `clients`: nobody looks into the nodes
    trace_kept: int = field(default=20_000, compare=False)  # lines; changes nothing of the run

    @property
    def looks_inside(self) -> bool:
        return self.watch != CLIENTS

    @property
    def command(self) -> str:
        begins = f"fencepost sim run --campaign {self.campaign} --seeds {self.seed}"
        return f"{begins} {self.asked}".rstrip()

    @property
    def asked(self) -> str:
        """The options that all plans of a campaign share."""
        parts = []
        for each in fields(self):
            option, value = OPTIONS.get(each.name), getattr(self, each.name)
            if option is not None and value != each.default:
                parts += [f"{option} {word}" for word in _words(each.name, value)]
        return " ".join(parts)

    def has_scene(self, name: str, odds: float, dice: random.Random) -> bool:
        """Whether it is asked for, or drawn by dice of its own: a seed without it is the run that it was."""
        return (dice.random() < odds and not self.workloads) or name in self.workloads

    def keeps(self, fault: int) -> bool:
        return self.keep_faults is None or fault in self.keep_faults

    def keeps_client(self, name: str) -> bool:
        return not self.keep_clients or name in self.keep_clients


def _words(name: str, value: object) -> list[str]:
    if name == "config":
        assert isinstance(value, tuple)
        return [str(each) for each in value]
    if isinstance(value, tuple):
        return [",".join(str(each) for each in value) or "none"]
    return [
        f"{value:g}s"
        if name == "until_s"
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    ]
