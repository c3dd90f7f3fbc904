"""When a voter asks to lead, and whether it lets another one ask: timeouts and pre-votes, and nothing of terms.

INVARIANT  a term begins only when a majority of voters, asked first, had not heard a leader for a while either.
PREVENTS   a node back from a cut, whose term grew while it was alone, that deposes a healthy leader.
PROVED BY  tests/cluster/quorum/test_quorum_of_three.py::test_a_voter_back_from_a_cut_deposes_nobody

A pre-vote costs nothing and changes nothing, so it is asked again soon; the dice keep two voters from
asking in step for ever.
"""

from collections.abc import Callable, Collection
from typing import Final

from ..base.ids import BrokerId
from .voters import is_elected, majority

HEARTBEAT_S: Final = 0.1
# Silence after which a leader is given up. Kafka's `controller.quorum.election.timeout.ms` is 1 s and its
# `controller.quorum.fetch.timeout.ms` 2 s; heartbeats here come five times as often.
ELECTION_S: Final = 0.5
# Its process is known to be dead: nothing but a tie is to be avoided.
GONE_S: Final = 0.05
RETRY_S: Final = 0.1  # and up to twice that
# How long a candidate waits for votes, which its peers sync to their disks, before it asks anew.
CANDIDATE_S: Final = 0.2
# Grants of rounds that began so long ago count still, where a round trip is longer than a round. A lead that is answered
# later than this can't be held anyway.
GRANTED_S: Final = ELECTION_S
# A timer that fires so late means that this process stood still, not its leader: what the leader said meanwhile lies
# unread in the socket. It is given the time to be read, once: where each turn of the loop takes so long nobody else may stand.
LATE_S: Final = 0.1
READ_S: Final = 0.05


class ElectionMachine:
    """`draw` gives a number in [0, 1). `first`: this voter has never voted before.

    What a leader was promised by the process before this one, it forgot: it holds to it as if it had heard that leader when
    it began. Else two who are killed and back in less than ELECTION_S would elect another in the lease of the first.
    """

    def __init__(self, now: float, draw: Callable[[], float], *, first: bool = True) -> None:
        self._draw = draw
        self._heard_at: float | None = None
        self._promised_until = now if first else now + ELECTION_S
        self._granted: dict[BrokerId, tuple[int, bool]] = {}  # the round, and whether it is fresh
        self._asked: dict[int, float] = {}  # the rounds that count, and when they began
        self.round = 0
        self._put_off = False  # the deadline, as this process was late for it
        self._set(now + RETRY_S * (1 + draw()))

    @property
    def deadline(self) -> float:
        return max(self._deadline, self._promised_until)

    def heard_leader(self, now: float) -> None:
        self._heard_at = self._promised_until = now
        self._end_rounds()
        self._set(now + ELECTION_S * (1 + self._draw()))

    def leader_gone(self, now: float) -> None:
        """The leader's process is dead, or it has stepped down: it need not be waited for."""
        self._heard_at = None
        self.hurry(now)

    def let_go(self, now: float) -> None:
        """The leader has asked another voter to stand: that one is to win, so this one does not hurry."""
        self._heard_at, self._promised_until = None, now

    def hurry(self, now: float) -> None:
        self._set(min(self._deadline, now + GONE_S * self._draw()))

    def voted(self, now: float) -> None:
        """For another voter: it gets the time to win."""
        self._set(max(self._deadline, now + CANDIDATE_S * (1 + self._draw())))

    def is_due(self, now: float) -> bool:
        if now - self.deadline > LATE_S and not self._put_off:
            self._set(now + READ_S)
            self._put_off = True
        return now >= self.deadline

    def _set(self, deadline: float) -> None:
        self._deadline, self._put_off = deadline, False

    def _end_rounds(self) -> None:
        self._granted.clear()
        self._asked.clear()

    def ask(self, now: float, me: BrokerId, *, fresh: bool) -> int:
        """A round of pre-votes begins. Answers to rounds of long ago count no more."""
        self.round += 1
        self._asked = {each: at for each, at in self._asked.items() if now - at < GRANTED_S}
        self._asked[self.round] = now
        self._granted = {
            each: given for each, given in self._granted.items() if given[0] in self._asked
        }
        self._granted[me] = self.round, fresh
        self._set(now + RETRY_S * (1 + self._draw()))
        return self.round

    def stand(self, now: float) -> None:
        """The pre-vote was won, or a leader has asked for it: the real election begins."""
        self._end_rounds()
        self._set(now + CANDIDATE_S * (1 + self._draw()))

    def on_granted(
        self, voter: BrokerId, round_: int, voters: Collection[BrokerId], *, fresh: bool
    ) -> bool:
        """Whether enough have now granted this round or one shortly before it. Says so once."""
        if round_ not in self._asked:
            return False
        self._granted[voter] = max(round_, self._granted.get(voter, (0, False))[0]), fresh
        won = is_elected(voters, {each: fresh for each, (_, fresh) in self._granted.items()})
        if won:
            self._end_rounds()
        return won

    def waits_for(self, voters: Collection[BrokerId]) -> list[BrokerId]:
        """Who has not granted a round that a majority has: only all are enough when fresh voters are among them."""
        if sum(each in self._granted for each in voters) < majority(len(voters)):
            return []
        return [each for each in sorted(voters) if each not in self._granted]

    def misses_leader(self, now: float) -> bool:
        """Whether this voter, for its part, has given up the leader that it had."""
        if now < self._promised_until:
            return False
        return self._heard_at is None or now - self._heard_at >= ELECTION_S
