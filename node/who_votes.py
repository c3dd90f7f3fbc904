"""A node that comes asks its peers who votes by now: its settings name those of the cluster's first day.

INVARIANT  a node that reaches anyone of the cluster comes to have the address of whoever leads its quorum.
PREVENTS   a new node that waits for ever: none of the voters in its settings leads, and the one that does leads since
           after they were written, has never heard of this node, and has no address to dial it.
PROVED BY  tests/sim/test_cluster_voters.py::test_a_newcomer_finds_a_leader_that_its_settings_do_not_name

What is heard is where to dial, never who votes: that, the metadata log alone says.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import FrameRefused, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.quorum.voters import Address, pack_voters
from fencepost.cluster.wire.peer_door import PeerDoor

KIND: Final = "who votes"
ASK_S: Final = 0.5  # the quorum may become ready meanwhile
# By settings there are five voters at most; AddRaftVoter knows no end, as Kafka's does not.
NAMED_MAX: Final = 1_000
HOST_MAX: Final = 255


class WhoVotes:
    """Asks one peer after another, and answers those who ask."""

    def __init__(
        self,
        door: PeerDoor,
        quorum: Quorum,
        registered: Callable[[BrokerId], Address | None],
    ) -> None:
        """`registered`: where a node has said that its peer door is, which may be elsewhere by now than when it was made a
        voter."""
        self._door = door
        self._quorum = quorum
        self._registered = registered
        self._asked = 0
        self._said: dict[BrokerId, Mapping[BrokerId, Address]] = {}  # by whom
        door.on_request(KIND, self._serve)

    @property
    def heard(self) -> Mapping[BrokerId, Address]:
        return {voter: where for said in self._said.values() for voter, where in said.items()}

    async def ask(self) -> None:
        """The next of those who can be asked. One of an older build does not understand, and another is asked then."""
        peers = self._door.connected()
        if not peers:
            return
        asked = peers[self._asked % len(peers)]
        self._asked += 1
        try:
            said, _ = await self._door.request(asked, KIND, {}, timeout_s=ASK_S)
            self._said[asked] = _read(asked, said)
            self._quorum.on_voters_named(asked, self._said[asked])
        except Trouble:
            self._said.pop(asked, None)

    async def _serve(
        self, _peer_id: BrokerId, _header: dict[str, Any], _payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        voters = self._quorum.voters
        now = {voter: self._registered(voter) or voters[voter] for voter in voters}
        return {"voters": pack_voters(now)}, b""


def _read(asked: BrokerId, said: Mapping[str, Any]) -> Mapping[BrokerId, Address]:
    named = said.get("voters")
    if not isinstance(named, list) or len(named) > NAMED_MAX:
        raise FrameRefused(f"node {asked} says who votes in unreadable words: {said!r:.200}")
    found: dict[BrokerId, Address] = {}
    for each in named:
        match each:
            case [int(id_), str(host), int(port)] if (
                id_ >= 0 and 0 < len(host) <= HOST_MAX and 0 < port <= 65535
            ):
                found[BrokerId(id_)] = (host, port)
            case _:
                raise FrameRefused(f"node {asked} names a voter that is none: {each!r:.200}")
    return found
