"""Producers that a new leader does not know, and whose lowest batch is not their first: what came before may be on its way.

INVARIANT  such a batch is taken only after its client was asked to send it again some times: what it had sent before, to the former
           leader, gets the time to come. And no longer than that: who is behind one that was given up begins in its place. So of as
           many producers as have a place (`places.py`); others begin where they are, as in Kafka.
PREVENTS   librdkafka taking a batch for acknowledged that was never written, as one behind it was: the first ones of a producer, which
           overtook each other on their way from a leader that hung to the next. And a producer that is refused for ever, since it has
           given up the one that is waited for.
PROVED BY  tests/replication/test_beginnings.py::test_the_first_batches_of_a_producer_do_not_overtake_each_other_when_the_lead_moves
           tests/replication/test_beginnings.py::test_who_gives_the_lowest_up_begins_with_one_behind_it

What comes behind the lowest is refused by the partition's history, which has noted that one as refused
(`log/verifications_machine.py`).
"""

from typing import Final, NamedTuple

from fencepost.cluster.wire.batch import BatchHeader

from .log.producer_snapshot import is_after
from .places import IN_FLIGHT_MAX, Places

TRIES: Final = IN_FLIGHT_MAX  # of the lowest, before it is taken
TRIES_BEHIND: Final = TRIES * IN_FLIGHT_MAX  # of all that come behind it meanwhile


class Beginning(NamedTuple):
    epoch: int
    sequence: int  # the lowest that has come
    last: int  # the highest
    tries: int = TRIES  # how often that lowest is sent back yet
    behind: int = TRIES_BEHIND  # how often others are


class Beginnings:
    """Of one partition."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Places[Beginning] = Places()

    def __bool__(self) -> bool:
        return bool(self._known)

    def may_begin(self, batch: BatchHeader, now_ms: int) -> bool:
        """The lowest that has come of a producer: was it asked for often enough? Or it is one too many to be remembered."""
        known = self._of(batch)
        if known is None:
            first = batch.base_sequence
            known = Beginning(batch.producer_epoch, first, first)
        elif is_after(
            batch.base_sequence, known.sequence
        ):  # the partition's history has forgotten that
            return not self.is_behind(batch, now_ms)
        elif is_after(known.sequence, batch.base_sequence):
            known = Beginning(known.epoch, batch.base_sequence, known.last)
        fewer = known._replace(tries=max(0, known.tries - 1))
        return not self._put(batch, fewer, now_ms) or not known.tries

    def is_behind(self, batch: BatchHeader, now_ms: int) -> bool:
        """Whether a lower one of its producer is waited for, and may still come."""
        known = self._of(batch)
        if known is None or not known.behind:
            return False
        return self._put(batch, known._replace(behind=known.behind - 1), now_ms)

    def is_given_up(self, batch: BatchHeader, now_ms: int) -> bool:
        """What is behind the lowest was sent back so often that its producer must have given that one up: the next may begin. Said
        once: what it is refused for after that is something else."""
        known = self._of(batch)
        if known is None or not (known.tries or known.behind):
            return False
        return self._put(batch, known._replace(tries=0, behind=0), now_ms)

    def written(self, batch: BatchHeader) -> Beginning | None:
        """Its producer has begun. What was waited for, if anything was."""
        known = self._of(batch)
        self._known.give_up(batch.producer_id)
        return known

    def renew(self) -> None:
        """This node leads anew: what comes before may be on its way from another one again."""
        self._known.change(lambda known: known._replace(tries=TRIES, behind=TRIES_BEHIND))

    def _of(self, batch: BatchHeader) -> Beginning | None:
        known = self._known.of(batch.producer_id)
        return known if known and known.epoch == batch.producer_epoch else None

    def _put(self, batch: BatchHeader, known: Beginning, now_ms: int) -> bool:
        if is_after(batch.base_sequence, known.last):
            known = known._replace(last=batch.base_sequence)
        return self._known.take(batch.producer_id, known, now_ms)
