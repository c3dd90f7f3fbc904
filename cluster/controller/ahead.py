"""The image as it will be when all that this controller has proposed is applied.

INVARIANT  a decision is applied to the very image that it was made on, or it is refused by the log.
PREVENTS   a leader that is elected because it lives, by one decision, while another one fences it: each is right by
           the image that it saw, the log takes both, and the partition is led by nobody for ever.
PROVED BY  tests/cluster/controller/test_ahead.py::test_a_broker_that_is_fenced_meanwhile_is_not_made_leader

Decisions read what they name nowhere: who lives, how many must be in sync. So each one's entry names the version of the
image it was made on (`ImageExpected`), and yet none waits for the one before: it is decided on a copy that has all of
them. What comes in one turn of the loop shares one sync of the journal, whatever it changes.

Should an entry not be applied as expected (the lead was lost, the disk is full), the log refuses all that were decided
behind it, as their version never comes; they are decided again.

A version counts entries, and does not tell which. When nobody knows what became of one (the lease was over for a moment,
its client has gone), it may be in the log still, and make the version that a later one was to make: what is decided
behind that one would be taken for right. So from then on one decision is made at a time, until the log has answered
one: it is behind all that was in doubt.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from ..metadata.codec import Command
from ..metadata.image import ClusterImage, TopicState
from ..metadata.machine import MetadataMachine
from ..metadata.records import PartitionsChanged, PartitionsCreated


class Proposal:
    """Commands on their way to the log, and the version that they make."""

    __slots__ = ("commands", "ended", "is_lost", "number", "version")

    def __init__(self, number: int, version: int, commands: Sequence[Command]) -> None:
        self.number = number
        self.version = version
        self.commands = commands
        # Whether they were applied as expected: for those who only read what they will have made.
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.is_lost = False  # nobody relies on it any more


class Ahead:
    """`applied` is the image of the log's end, as far as it is committed and applied here."""

    def __init__(self, applied: ClusterImage) -> None:
        self._applied = applied
        self._proposed: deque[Proposal] = deque()
        self._copy: _Copy | None = None
        self._count = 0
        self._in_doubt_to = 0  # the number of the last one that may be in the log unknown to us
        self._alone: Proposal | None = None

    @property
    def alone(self) -> Proposal | None:
        """While something is in doubt: what has to end before anything else is decided."""
        return self._alone

    @property
    def image(self) -> ClusterImage:
        """What the next decision is made on. Read it, and let go of it before the next `await`."""
        proposed, applied = self._proposed, self._applied
        while proposed and proposed[0].version <= applied.version:
            proposed.popleft()
        if not proposed:
            self._copy = None
            return applied
        if self._copy is None:
            self._copy = _Copy(applied)
            for proposal in proposed:
                self._copy.take(proposal.commands)
        return self._copy.image

    @property
    def last(self) -> Proposal | None:
        """What `image` relies on; None when all of it is applied."""
        return self._proposed[-1] if self._proposed else None

    def propose(self, commands: Sequence[Command]) -> Proposal:
        """They were decided on `image`, and are on their way."""
        assert self._alone is None, "a decision stands on one that may not be what it seems"
        self._count += 1
        proposal = Proposal(self._count, self.image.version + 1, commands)
        if self._in_doubt_to:
            self._alone = proposal
        if self._copy is not None:
            self._copy.take(commands)
        self._proposed.append(proposal)
        return proposal

    def end(self, proposal: Proposal, *, well: bool, is_known: bool) -> None:
        """What became of it; if not what was expected, whatever was decided behind it is void."""
        if not is_known:
            self._in_doubt_to = self._count
        elif proposal.number > self._in_doubt_to:
            self._in_doubt_to = 0
        if proposal is self._alone:
            self._alone = None
        if not well and not proposal.is_lost:
            for each in self._proposed:
                each.is_lost = True
            self._proposed.clear()
            self._copy = None
        if not proposal.ended.done():
            proposal.ended.set_result(well)


class _Copy:
    """Of an image, with more applied. Topics are copied when they are changed: their lists of partitions are long."""

    def __init__(self, image: ClusterImage) -> None:
        self._machine = MetadataMachine()
        self._mine: set[int] = set()  # the topics, by identity
        mine = self.image = self._machine.image
        mine.cluster_id, mine.version = image.cluster_id, image.version
        mine.brokers, mine.features = dict(image.brokers), dict(image.features)
        mine.topics, mine.topics_by_id = dict(image.topics), dict(image.topics_by_id)
        mine.configs = dict(image.configs)
        mine.next_producer_id = image.next_producer_id
        mine.controller_id = image.controller_id

    def take(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, PartitionsChanged | PartitionsCreated):
                self._own(self.image.topics_by_id.get(command.topic_id))
        self._machine.apply_batch(list(commands))

    def _own(self, theirs: TopicState | None) -> None:
        if theirs is None or id(theirs) in self._mine:
            return
        mine = TopicState(theirs.name, theirs.topic_id, list(theirs.partitions))
        self._mine.add(id(mine))
        self.image.topics[mine.name] = self.image.topics_by_id[mine.topic_id] = mine
