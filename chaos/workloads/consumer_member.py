"""A member of a consumer group of the new protocol on the wire (KIP-848): it says what it holds, and is told what it may hold.

INVARIANT  it holds what it was given last, and has begun all of it where the group has committed; what is taken from it, it gives
           up between two rounds and says so at once. Now and then it holds on for another round, as one that is at work does.
PREVENTS   groups of this protocol of which no simulated run has seen any: fences by a member's epoch, partitions that go from one
           to another, coordinators that move meanwhile.
PROVED BY  tests/sim/test_groups_of_the_new_protocol.py::test_members_share_the_partitions_and_take_over_those_of_one_that_crashed

As Java's AsyncKafkaConsumer, with heartbeats that say everything, as those behind a lost answer do.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from ..checkers.observations import Asks, Heard
from .cluster_client import ClusterClient
from .group_member import RETRY_PAUSE_S, GroupMember
from .txn_answers import BrokenPromise, Partition

HEARTBEAT_VERSION: Final = 1  # member ids made by clients
REBALANCE_TIMEOUT_MS: Final = 3_000
BEAT_S: Final = 0.3
HOLD_ON_ODDS: Final = 0.5
JOIN, LEAVE = 0, -1  # epochs that say so
# It is no member any more, or not the one that it was: all that it holds is others' by now.
FENCED: Final = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})
ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.unknown_server_error,
    }
)


class ConsumerMember(GroupMember):
    """`generation` is the member's epoch."""

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        places: Sequence[Partition],
        on_heard: Callable[[Asks | Heard], None] = lambda _: None,
    ) -> None:
        super().__init__(client, group, places)
        self._on_heard = on_heard
        self._holds_on = False
        self._lives = count(1)
        self._topic_id: UUID | None = None
        self._is_moved = False
        self.forget()

    def lost(self) -> None:
        """Somebody has refused its positions: it asks before it goes on."""
        self._beaten_s = float("-inf")

    def forget(self) -> None:
        """As a process that crashed: it is another member when it comes back, and the group has to find out."""
        self._is_fenced()
        self.member_id = f"{self.client.name}-{next(self._lives)}"

    def _is_fenced(self) -> None:
        self.generation, self.mine, self._is_moved = -1, [], True
        self._holds_on = False
        self.lost()

    async def rejoined(self) -> bool:
        """Whether partitions are given anew: where it was in them counts no more."""
        clock = self.client.env.clock
        while not self._joined or clock.steady() - self._beaten_s >= BEAT_S:
            if not await self._heartbeat():
                if self._joined:
                    break  # nobody has answered: it goes on
                await clock.sleep(RETRY_PAUSE_S)
        is_moved, self._is_moved = self._is_moved, False
        return is_moved

    async def leave(self) -> None:
        """As a consumer that is closed does; a crash does not."""
        if self._joined:
            await self._say(LEAVE)
        self.forget()

    async def _heartbeat(self) -> bool:
        """Whether it was heard."""
        self._on_heard(Asks(self.member_id))
        reply = await self._say(self.generation if self._joined else JOIN)
        if reply is None:
            return False
        error = reply.error_code
        if error is not ErrorCode.none:
            if error in FENCED:
                self._is_fenced()
            elif error in ASK_AGAIN:
                self._coordinator.forget()
            else:
                raise BrokenPromise(f"heartbeat of {self.member_id}: {error.name}")
            return False
        self.generation = reply.member_epoch
        self._beaten_s = self.client.env.clock.steady()
        held = tuple(self.mine)
        if reply.assignment is not None:
            self._given(reply.assignment.topic_partitions)
        self._on_heard(Heard(self.member_id, self.generation, held, tuple(self.mine)))
        return True

    def _given(self, topics: Sequence[Any]) -> None:
        for each in topics:
            self._topic_id = each.topic_id
        given = sorted((self.topic, partition) for each in topics for partition in each.partitions)
        if given == self.mine:
            return
        if not set(self.mine) <= set(given):
            self._holds_on = not self._holds_on and self.client.env.rng.random() < HOLD_ON_ODDS
            if self._holds_on:
                return
            self.lost()  # others wait for what it has given up
        self.mine, self._is_moved = given, True

    async def _say(self, epoch: int) -> Any:
        held = [partition for _, partition in self.mine]
        return await self._ask(
            ApiKey.consumer_group_heartbeat,
            HEARTBEAT_VERSION,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self.topic],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[{"topic_id": self._topic_id, "partitions": held}] if held else [],
        )
