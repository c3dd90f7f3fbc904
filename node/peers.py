"""This node's peer door, and what goes through it to the metadata quorum.

A node alone has no door: its `links` carry nothing, as there is nobody to send to.
"""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Final

import msgpack
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, EXIT_LATER, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.controller.liveness import Liveness
from fencepost.cluster.controller.service import NotController
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.cluster.quorum.view import QuorumView, ReplicaView
from fencepost.cluster.wire.peer_door import PeerDoor

from .fresh_image import CONFIRM_S, FreshImage
from .kept_lives import KeptLives
from .majority import why_nobody_leads, why_not_taken_in
from .node_folder import DISK_ID, NodeFolder
from .peer_settings import Address, PeerSettings
from .voters import registered_address
from .who_votes import WhoVotes

QUORUM, DESCRIBE_QUORUM = "quorum", "describe quorum"
DESCRIBE_S: Final = 5.0
# Nobody takes this node in for so long, and those who answer say why: it ends with their sentence.
REFUSED_S: Final = 10.0
LOOK_S: Final = 0.5
# How long an answer waits for the cluster to say what became of a broker that was just lost sight of.
SETTLE_S: Final = 1.0
# Of the loop, in which the end of a connection that came together with the question is noticed.
TURNS: Final = 3
HAIR_S: Final = 0.001  # what a sum of floats leaves of a time that is over


class QuorumLinks:
    """What Raft sends to other voters and observers, one-way."""

    def __init__(self, door: PeerDoor) -> None:
        self._door = door

    def send(self, node_id: BrokerId, frame: bytes) -> None:
        self._door.send(node_id, QUORUM, {}, frame)


class Peers:
    """The door, to be opened once the quorum can take what comes in."""

    def __init__(
        self,
        env: Env,
        node_id: BrokerId,
        settings: PeerSettings,
        image: ClusterImage,
        folder: NodeFolder,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._settings = settings
        self._image = image
        self._folder = folder
        self._quorum: Quorum | None = None
        self._who_votes: WhoVotes | None = None
        self._fresh: FreshImage | None = None
        self._is_ready = False
        self._dials: dict[BrokerId, int] = {}
        self._lost_since: dict[BrokerId, float] = {}
        self._settling: list[asyncio.Future[None]] = []
        self.door: PeerDoor | None = None
        self.links: QuorumLinks | None = None
        if not settings.is_alone:
            self._lives = KeptLives(env, folder)
            self.door = PeerDoor(
                env,
                node_id,
                secret=settings.secret,
                cluster_id=self._cluster_id,
                address_of=self._address_of,
                tls=settings.tls,
                lives=self._lives.lives,
            )
            self.door.on_folder_of_before(self._end)
            self.links = QuorumLinks(self.door)

    async def open(self, quorum: Quorum, liveness: Liveness) -> None:
        """From here on peers are heard; who of them comes and goes, quorum and controller are told."""
        self._quorum = quorum
        quorum.on_leader_change.append(liveness.on_leader_change)
        if self.door is None:
            return
        assert self._settings.listener is not None
        door = self.door
        self._lives.start(door)

        def on_frame(peer_id: BrokerId, _header: dict[str, Any], frame: memoryview) -> None:
            theirs, ours = door.cluster_of(peer_id), self._cluster_id()
            if theirs and theirs != ours and (ours or quorum.view().is_beginning):
                return  # it was let in before this node had a cluster of its own, and is turned out in a moment
            quorum.on_frame(peer_id, frame)

        self.door.on_message(QUORUM, on_frame)
        self.door.on_request(DESCRIBE_QUORUM, self._describe)
        registered = functools.partial(registered_address, self._image)
        self._who_votes = WhoVotes(self.door, quorum, registered)
        self._fresh = FreshImage(self._env, quorum, self._image, self.door)
        self.door.on_up(quorum.on_peer_up)
        self.door.on_up(functools.partial(self._tell_up, liveness))
        liveness.is_connected = self.door.has_process
        self.door.on_up(self._seen)
        self.door.on_gone(quorum.on_peer_gone)
        self.door.on_gone(liveness.on_gone)
        host, port = self._settings.listener
        try:
            await self.door.open(host, port)
        except OSError as refused:
            raise CannotRun(
                f"can't listen on {host}:{port} (peer.listener): {refused.strerror or refused}. Stop "
                "what holds that address, or choose another with peer.listener.",
                EXIT_LATER,
            ) from refused
        self._watch()

    def _cluster_id(self) -> str:
        """Empty while this node belongs to none."""
        return self._folder.cluster_id or self._image.cluster_id

    def tell_life(self) -> None:
        if self.door is not None:
            self.door.tell_life()

    def _end(self, peer_id: BrokerId, seen: int) -> None:
        """Nothing more may be said in this node's name: not even until it is ready."""
        folder = self._folder
        self._env.die(
            CannotRun(
                f"{folder.path} is older than what node {peer_id} has seen of this node: it is in life {folder.told_life.number} of that"
                f" folder ({DISK_ID}={folder.disk_id}), and the life {seen} that was there is not in its past. It was put back"
                " from a copy, or a copy of it runs elsewhere: it may lack what this node acknowledged. Let it begin with an empty folder,"
                " as after a disk was replaced (deploy/docker/README.md, `A node whose disk is gone for good`): move"
                f" {folder.path} away, and start it again.",
                EXIT_IDENTITY,
            )
        )

    def _tell_up(self, liveness: Liveness, node_id: BrokerId) -> None:
        assert self.door is not None
        process = self.door.incarnation_of(node_id)
        assert process is not None, "a link is up that is not there"
        liveness.on_up(node_id, process)

    async def close(self) -> None:
        if self.door is not None:
            await self._lives.close()
            await self.door.close()

    async def wait_ready(self) -> None:
        """Until the quorum has a leader and this node its log. Trouble when the others don't want this node."""
        assert self._quorum is not None
        refused_since: float | None = None
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._quorum.wait_ready()
                self._is_ready = True
                return
            except TimeoutError:
                refusals = self._refusals()
            if self._who_votes is not None:
                await self._who_votes.ask()
                self._watch()
            now = self._env.clock.steady()
            if not refusals:
                refused_since = None
            elif refused_since is None:
                refused_since = now
            elif now - refused_since >= REFUSED_S:
                raise CannotRun("; ".join(refusals), EXIT_IDENTITY)

    def _refusals(self) -> list[str]:
        """Why the voters don't want this node, when none of those that answer does."""
        if self.door is None or self.door.connected():
            return []
        others = [each for each in sorted(self._settings.voters) if each != self._node_id]
        said = [self.door.refusal_of(each) for each in others]
        return [f"voter {each}: {why}" for each, why in zip(others, said, strict=True) if why]

    # --- who is watched, and where ---

    def on_image(self, delta: ImageDelta) -> None:
        if self._fresh is not None:
            self._fresh.on_image()
        if self._quorum is not None and delta.brokers_changed:
            self._watch()
            self._look_again()

    def _watch(self) -> None:
        if self.door is not None:
            voters = {} if self._quorum is None else self._quorum.voters
            known = {*self._settings.voters, *voters, *self._image.brokers, *self._heard()}
            self.door.watch(sorted(known - {self._node_id}))

    def _heard(self) -> Mapping[BrokerId, Address]:
        """Voters that others name, until this node knows for itself."""
        return {} if self._is_ready or self._who_votes is None else self._who_votes.heard

    def _address_of(self, node_id: BrokerId) -> Address | None:
        """Where it was registered; of a voter that never was, where the settings say.

        Until this node has caught up nobody knows which of them is newest, or whether others know a newer one: each is
        tried in turn. A cluster that was moved as a whole finds together by its settings.
        """
        registered = registered_address(self._image, node_id)
        configured = self._settings.voters.get(node_id)
        if configured is None and self._quorum is not None:
            configured = self._quorum.voters.get(node_id)  # of later than the settings
        if self._is_ready:
            return registered or configured
        known = (configured, registered, self._heard().get(node_id))
        tried = list(dict.fromkeys(each for each in known if each is not None))
        dial = self._dials[node_id] = self._dials.get(node_id, -1) + 1
        return tried[dial % len(tried)] if tried else None

    async def confirm_image(self, within_s: float = CONFIRM_S) -> bool:
        """Whether this node knows by now all that the cluster had agreed on when this was asked. A node alone always does."""
        return self._fresh is None or await self._fresh.confirm(within_s)

    def may_decide(self) -> bool:
        """Whether so many voters are in sight that there can be a controller."""
        if self.door is None:
            return True
        assert self._quorum is not None
        seen = {self._node_id, *self.door.connected()}
        voters = (
            self._quorum.view().voters
        )  # those of the log, which may have changed since the settings
        return 2 * sum(voter in seen for voter in voters) > len(voters)

    # --- who was just lost ---

    async def settled(self) -> None:
        """Until the image says what became of a broker that this node has just lost sight of, or for a bounded time.

        A client asks who leads in the moment in which its connection to a killed leader ends. Told the old
        leader's name it asks again after a second; told a few milliseconds later who leads now, it goes on.
        """
        if self.door is None:
            return
        for _ in range(TURNS):
            await self._env.clock.sleep(0)
        while (wait_s := self._wait_s()) > HAIR_S:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(changed)
            try:
                async with asyncio.timeout(wait_s):
                    await changed
            except TimeoutError:
                continue
            finally:
                changed.cancel()

    def _wait_s(self) -> float:
        assert self.door is not None
        seen = self.door.connected()
        now = self._env.clock.steady()
        since = [
            self._lost_since.setdefault(broker.broker_id, now)
            for broker in self._image.alive_brokers()
            if broker.broker_id != self._node_id and broker.broker_id not in seen
        ]
        return max(since) + SETTLE_S - now if since else 0.0

    def _seen(self, node_id: BrokerId) -> None:
        self._lost_since.pop(node_id, None)
        self._look_again()

    def _look_again(self) -> None:
        settling, self._settling = self._settling, []
        for changed in settling:
            if not changed.done():
                changed.set_result(None)

    # --- how the quorum stands ---

    async def describe_quorum(self) -> QuorumView:
        """What its leader knows of it. Trouble when there is none to ask."""
        assert self._quorum is not None
        leader_id = self._quorum.leader_id
        if self._quorum.is_leader or self.door is None:
            return self._quorum.view()
        if leader_id is None or leader_id == self._node_id:
            raise NotController(leader_id, self.why_nobody_leads())
        _, packed = await self.door.request(leader_id, DESCRIBE_QUORUM, {}, timeout_s=DESCRIBE_S)
        return _read_view(packed)

    def why_nobody_leads(self) -> str | None:
        """Whom this node reaches of the voters. None while it knows who leads, or does not look yet."""
        if self._quorum is None or self.door is None or self._quorum.leader_id is not None:
            return None
        quorum, connected = self._quorum, self.door.connected()
        view = quorum.view()
        if view.of_others:
            return why_not_taken_in(self._node_id, view.of_others)
        refusals = {
            each: self.door.refusal_of(each) for each in quorum.voters if each != self._node_id
        }
        return why_nobody_leads(
            self._node_id,
            quorum.voters,
            connected,
            view.waits_for,
            {each: why for each, why in refusals.items() if why is not None},
            has_secret=bool(self._settings.secret),
        )

    async def _describe(
        self, _peer_id: BrokerId, _header: dict[str, Any], _payload: memoryview
    ) -> tuple[dict[str, Any], Buffer]:
        assert self._quorum is not None
        if not self._quorum.is_leader:
            raise NotController(self._quorum.leader_id)
        view = self._quorum.view()
        said = [view.leader_id, view.term, view.high_watermark]
        return {}, msgpack.packb([*said, _pack(view.voters), _pack(view.observers)])


def _pack(replicas: Any) -> list[tuple[int, ...]]:
    return [(id_, *seen) for id_, seen in replicas.items()]


def _read_view(packed: memoryview) -> QuorumView:
    try:
        leader_id, term, high_watermark, *members = msgpack.unpackb(packed)
        voters, observers = (
            {BrokerId(id_): ReplicaView(*seen) for id_, *seen in each} for each in members
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as damaged:
        raise FrameRefused(f"a peer describes the quorum in unreadable words: {damaged}") from (
            damaged
        )
    return QuorumView(leader_id, term, high_watermark, voters, observers)
