"""What check-back leaves in the log: one record for each transactional id whose transaction was last prepared.

It stays after the decision, until the next half message of that id: a checker or a producer that comes late is
told what was decided, and a delayed `prepare` of a message that is over does not prepare the next one.

A `half_number` stands behind the other fields, and only if there is one: older builds read over it, and write none.
"""

import enum
from dataclasses import dataclass

from .added_records import HALF_MESSAGE, key_of, read_key, read_value, value_of


class HalfState(enum.IntEnum):
    WAITING = 0  # for its producer, or for a check's answer
    PARKED = 1  # all checks were delivered and nobody knew: a person decides
    COMMITTED = 2
    ROLLED_BACK = 3


DECIDED = (HalfState.COMMITTED, HalfState.ROLLED_BACK)
# What a half message may become. `apply` refuses every other step, in replay too.
MAY_BECOME: dict[HalfState, tuple[HalfState, ...]] = {
    HalfState.WAITING: (HalfState.WAITING, HalfState.PARKED, *DECIDED),
    # PARKED again: its producer's next incarnation has taken it over (KIP-939).
    HalfState.PARKED: (HalfState.WAITING, HalfState.PARKED, *DECIDED),
    HalfState.COMMITTED: (),
    HalfState.ROLLED_BACK: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """A prepared transaction. `checks` counts those that were delivered, and nothing else."""

    transactional_id: str
    half_id: str
    producer_id: int
    producer_epoch: int
    state: HalfState
    prepared_ms: int
    checks: int = 0
    next_check_ms: int = 0
    changed_ms: int = 0
    decided_by: str = ""
    # The highest that this producer id and epoch has sent: each half message has a higher one. 0 if it sends none.
    half_number: int = 0

    @property
    def is_decided(self) -> bool:
        return self.state in DECIDED

    def encode(self) -> tuple[bytes, bytes]:
        numbered = (self.half_number,) if self.half_number else ()
        value = value_of(
            self.half_id,
            self.producer_id,
            self.producer_epoch,
            int(self.state),
            self.prepared_ms,
            self.checks,
            self.next_check_ms,
            self.changed_ms,
            self.decided_by,
            *numbered,
        )
        return key_of(HALF_MESSAGE, self.transactional_id), value


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfForgotten:
    transactional_id: str

    def encode(self) -> tuple[bytes, None]:
        return key_of(HALF_MESSAGE, self.transactional_id), None


def decode_half_message(key: bytes, value: bytes | None) -> HalfMessage | HalfForgotten:
    transactional_id, _ = read_key(key, numbered=False)
    if value is None:
        return HalfForgotten(transactional_id=transactional_id)
    shape = (str, int, int, int, int, int, int, int, str)
    half_id, producer_id, epoch, state, prepared, checks, due, changed, by, *behind = read_value(
        value, shape
    )
    half_number = behind[0] if behind else 0
    if type(half_number) is not int:
        raise ValueError("a half message has a number that is none")
    return HalfMessage(
        transactional_id=transactional_id,
        half_id=half_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=HalfState(state),
        prepared_ms=prepared,
        checks=checks,
        next_check_ms=due,
        changed_ms=changed,
        decided_by=by,
        half_number=half_number,
    )
