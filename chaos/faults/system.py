"""What a schedule of faults asks of brokers that run somewhere, whoever they are.

What a system cannot do it leaves out of `can`; a schedule that asks for a fault of that kind is told so by name before
anything begins.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from ..harness.asking import Address
from .proxy import CLIENTS, Way

if TYPE_CHECKING:
    from .world import World

__all__ = ["CLIENTS", "EVERYTHING", "CannotDo", "System", "Way"]

# What there is to be done to brokers; `can` of each system is a part of it.
EVERYTHING: Final = frozenset(
    {
        "kill",
        "pause",
        "cut",
        "one-way",
        "slow",
        "clock",
        "disk",
        "power",
        "damage",
        "members",
        "drain",
        "upgrade",
    }
)
UPGRADE: Final = "upgrade"
# What a node runs, of a system whose nodes do not all run the same.
OLDER, NEWER = "older", "newer"

# Of nodes whose clocks are set wrong: a record of a client whose clock is right is of the future to one that was set back.
BY_ANY_CLOCK: Final = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}


class CannotDo(Exception):
    """This system has no such fault; the sentence names both, and what it can do."""


class System(Protocol):
    """Nodes are numbered from 1. Whatever was done to them, `close` leaves nothing of it behind."""

    name: str
    nodes: tuple[int, ...]
    can: frozenset[str]  # here
    wants: Mapping[str, str]  # what only some machines can give it: what that takes
    back_s: float  # after which a node that was started and does not serve counts as lost

    @property
    def foreign(self) -> Mapping[str, str]:
        """What its nodes are, where that is not this checkout: the release of `kafka`, the id of an `image`. DidNotStart when it
        can't be had."""

    @property
    def bootstrap(self) -> str:
        """For clients: what is cut off from clients is not reached here."""

    @property
    def doors(self) -> Mapping[int, Address]:
        """Where each node answers questions of the harness, whatever is cut."""

    @property
    def admins(self) -> Mapping[int, Address]:
        """Where the admin door of each node is, whatever is cut; nothing for brokers that have none."""

    def begin(self) -> float:
        """Start all; seconds until all served."""

    def pid(self, node: int) -> int:
        """ProcessLookupError when it does not run."""

    def runs(self, node: int) -> bool:
        """Whether there is a process of it, paused or not."""

    def exit_code(self, node: int) -> int | None:
        """Of its last process, when that has ended."""

    def is_up(self, node: int) -> bool:
        """Whether it runs, is not paused, and its client door answers."""

    def kill(self, node: int, signal_number: int = signal.SIGKILL) -> None:
        """And wait until it is gone. Nothing happens to a node that is gone already."""

    def start(self, node: int) -> None:
        """Without waiting until it serves: that may need others. Nothing happens to a node that runs."""

    def wait_ready(self, nodes: Sequence[int], timeout_s: float) -> float:
        """Seconds until all of them served; `DidNotStart` or TimeoutError when one does not."""

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    @property
    def paused(self) -> frozenset[int]: ...

    def cut(self, ways: Iterable[Way]) -> None:
        """All that is cut from now on: from whom to whom, `CLIENTS` being everybody who is no node."""

    def slow(self, ways: Mapping[Way, float]) -> None:
        """All that is slow from now on: seconds that each piece takes longer."""

    def heal(self) -> None:
        """Nothing is cut or slow or paused any more. Who is dead stays dead."""

    def folder(self, node: int) -> Path:
        """Its data."""

    def world(self, node: int) -> "World":
        """Its clocks, disk and power, where `can` has one of these."""

    def said(self, node: int) -> str:
        """The end of its log."""

    @property
    def builds(self) -> Mapping[int, str]:
        """What each runs, or is going to run, where not all run the same: OLDER or NEWER."""

    def take_build(self, node: int, build: str) -> None:
        """From its next start on; where `builds` has it."""

    def stop(self) -> Mapping[int, int]:
        """All, cleanly; the exit code of each."""

    def close(self) -> None:
        """At once."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
