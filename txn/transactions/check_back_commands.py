"""What check-back is asked, and what it answers. Refusals are those of `group_commit_commands.py`."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .check_back_records import HalfMessage


class Verdict(enum.Enum):
    """What a checker says of its local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class Attempt(NamedTuple):
    """One check of one half message: `number` counts from 1 and goes up only when a check was delivered."""

    transactional_id: str
    half_id: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareHalf:
    """From now on no timeout ends this transaction, and nothing may be added to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    half_id: str
    # Higher than that of the half message before; 0 of a client that sends none.
    half_number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PollChecks:
    """A checker is there and waits for work. `delivered` are the attempts that reached it since its last poll."""

    group: str
    member: str
    ticket: int
    wait_ms_max: int
    checks_max: int
    delivered: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PollGone:
    """Whoever waited with this ticket has hung up."""

    group: str
    member: str
    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """`attempt` is 0 when it is not the answer to a check: a person decides, or the producer itself."""

    transactional_id: str
    half_id: str
    verdict: Verdict
    by: str
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseHalf:
    """A parked half message is checked again, from the first interval on."""

    transactional_id: str
    half_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeHalf:
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHalves:
    """Those that are not decided, in the order of their ids."""

    parked_only: bool = False
    halves_max: int = 1_000


@dataclass(frozen=True, slots=True)
class HalfAnswered:
    """How a half message stands now. `is_new` is False when it had been decided before."""

    half: HalfMessage
    is_new: bool
