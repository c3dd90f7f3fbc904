"""What a run is asked to do, as the command line says it and as it says it again; and where it was done."""

import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from ..faults.older import OLDER, called
from ..faults.system import UPGRADE
from ..harness import checkout
from .plan_words import KAFKA, OLDER_BUILD, QUEUE

BANK: Final = "bank"
VIAS: Final = ("assign", "subscribe")
# Of a plan, all that decides how much comes through beside what is run under which faults: runs that differ in one of these
# are not compared.
LOAD_OPTIONS: Final = (
    "seconds", "clients", "rate", "at_once", "keys", "writes_max", "via", "transactions", "crash_s", "age_s", "settings",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Defaults are what a short run on a laptop bears."""

    workload: str = QUEUE
    target: str = "processes"
    faults: tuple[str, ...] = ("kill",)
    seconds: float = 60.0
    seed: int = 1
    nodes: int = 3
    at_once: int = 1
    clients: int = 5
    rate: float = 10.0  # operations a second and client
    keys: int = 8  # in use at a time
    writes_max: int = 1024  # to a key, by all
    via: tuple[str, ...] = VIAS
    transactions: bool = True
    crash_s: float = 30.0  # a client lives about so long; 0: it is not crashed
    final_s: float = 200.0
    age_s: float = (
        0.0  # for an id to come to its last epochs before the load; 0: it begins as a new one
    )
    older: str = OLDER  # the build that an upgrade begins on
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.target}-{'-'.join(self.faults)}"

    @property
    def command(self) -> str:
        """One line that does it again; what is as by default is left out."""
        words = ["fencepost", "chaos", "run"]
        usual = Plan()
        for option in ("workload", "target", "faults", "seconds", "seed", "nodes"):
            words += [f"--{option}", _word(getattr(self, option))]
        for option in (
            "at_once",
            "clients",
            "rate",
            "keys",
            "writes_max",
            "via",
            "crash_s",
            "final_s",
            "age_s",
        ):
            if getattr(self, option) != getattr(usual, option):
                words += [f"--{option.replace('_', '-')}", _word(getattr(self, option))]
        if UPGRADE in self.faults:  # what is usual then may be another commit
            words += ["--older", self.older]
        if not self.transactions:
            words.append("--no-transactions")
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join(words)

    @property
    def copies(self) -> int:
        return min(3, self.nodes)


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def versions(plan: Plan, foreign: Mapping[str, str]) -> dict[str, str]:
    """`foreign`: what the nodes are that are not this checkout's code (`System.foreign`): they have none of its commits. Beside
    Kafka's release the commit is that of who struck and judged."""
    from confluent_kafka import libversion

    found = {
        "fencepost": version("fencepost"),
        "python": platform.python_version(),
        "librdkafka": libversion()[0],
    }
    found |= foreign
    if UPGRADE in plan.faults:
        found[OLDER_BUILD] = called(plan.older)
    if (not foreign or plan.target == KAFKA) and (commit := checkout.commit()):
        found["commit"] = commit
    return found


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load at the beginning": f"{os.getloadavg()[0]:.1f}",
    }
