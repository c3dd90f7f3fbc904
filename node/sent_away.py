"""Consumers that were sent to the replica in their rack, and come back because it could not serve them.

INVARIANT  a consumer that comes back for the very offset with which it was sent away is served where it came back to.
PREVENTS   a consumer going to and fro for ever between a leader, and a follower whose log begins later: each replica
           deletes old segments by itself.
PROVED BY  tests/node/test_reads_from_followers.py::test_a_consumer_that_its_replica_can_not_serve_is_served_by_the_leader

Kafka's leader knows where its followers' logs begin, and sends nobody to one that begins too late.
"""

from typing import Final

# A client that was refused comes back at once; one whose lease of a replica is over comes after minutes.
BACK_WITHIN_S: Final = 10.0
# For how long it is kept then: what the replica lacks, it may lack of the next offsets too.
KEPT_S: Final = 30.0
REMEMBERED_MAX: Final = 10_000

Who = tuple[str, int, str, int]  # the connection's host and port; topic and partition


class SentAway:
    """Whoever was remembered for longest is forgotten first: at worst it makes one way more."""

    def __init__(self) -> None:
        self._known: dict[Who, tuple[int, float, float]] = {}  # offset, when, kept until

    def may_send(self, who: Who, offset: int, now: float) -> bool:
        """Whether to send it away now, remembering that it was."""
        last, at, kept_until = self._known.pop(who, (-1, 0.0, 0.0))
        if now >= kept_until and last == offset and now - at < BACK_WITHIN_S:
            kept_until = now + KEPT_S
        sends = now >= kept_until
        self._known[who] = (offset, now, kept_until) if sends else (last, at, kept_until)
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return sends
