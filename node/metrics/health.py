"""Whether this node lives, and whether clients and other nodes may count on it: the rule that a rolling restart rests on.

INVARIANT  a node says that it is ready only while every replica of its own is in sync with its partition's leader.
PREVENTS   the next node of three being taken down while this one still lacks what the third alone would have then.
PROVED BY  tests/node/test_readiness.py::test_a_node_that_was_restarted_is_ready_when_it_is_back_in_every_isr

The states are asked for in their order; the README has them as a table. Nothing here ends after a time: what is not
well is said for as long as it is so.
"""

import enum
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.cluster.quorum.figures import disk_full_of

from ..few import few
from .shared import Shared

if TYPE_CHECKING:
    from ..broker import Broker

PARTITIONS_A_STEP: Final = 200
# Metadata that is committed elsewhere is applied here a round trip later; only what stays behind is worth a word.
BEHIND_S: Final = 1.0


class State(enum.Enum):
    STOPPING = "stopping"
    STARTING = "starting"
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    CUT_OFF = "cut_off"
    BEHIND = "behind"
    DISK_FAILED = "disk_failed"
    DISK_FULL = "disk_full"
    CATCHING_UP = "catching_up"
    READY = "ready"


class Verdict(NamedTuple):
    state: State
    why: str

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY


class Health:
    def __init__(self, node: "Broker") -> None:
        self._node = node
        self._shared = Shared(node.env, "readiness", self.verdict)

    async def verdict(self) -> Verdict:
        """Of this moment. Looking at thousands of partitions takes several turns of the loop."""
        trouble = self._of_process() or self._of_broker() or self._of_disk()
        if trouble is None and not self._node.is_ready:
            return Verdict(State.STARTING, "this node is starting: it opens its doors")
        return trouble or await self._of_copies()

    def _of_process(self) -> Verdict | None:
        node = self._node
        if node.is_stopping:
            return Verdict(
                State.STOPPING, "this node was told to stop: it hands over what it leads"
            )
        full = disk_full_of(node.quorum)
        if full is not None:
            why = f"the disk of {node.config.log_dir} is full: the metadata can't be written. Make room there"
            return Verdict(State.DISK_FULL, why)
        if node.starts_by:
            return Verdict(
                State.STARTING, f"this node is starting: {node.starts_by}{self._nobody()}"
            )
        return None

    def _nobody(self) -> str:
        """Who is to be started, when nobody leads the metadata quorum."""
        why = self._node.peers.why_nobody_leads()
        return "" if why is None else f". Nobody leads the metadata quorum: {why}"

    def _of_broker(self) -> Verdict | None:
        node, session = self._node, self._node.session
        me = node.image.brokers.get(node.config.node_id)
        if me is None or me.broker_epoch != session.broker_epoch:
            why = "the cluster does not count this process in (any more); it registers by itself"
            return Verdict(State.UNREGISTERED, why)
        if me.fenced:
            why = "the controller has fenced this node: it was not heard, or just came back"
            return Verdict(State.FENCED, why)
        if session.is_cut_off:
            age = session.heartbeat_age_s
            why = f"no controller has answered this node for {age:.1f} s: others may lead what it leads"
            why += self._nobody()
            return Verdict(State.CUT_OFF, why)
        behind_s = node.metrics.behind_s
        if behind_s > BEHIND_S:
            why = f"for {behind_s:.1f} s this node has not had all metadata that is committed"
            return Verdict(State.BEHIND, why)
        return None

    def _of_disk(self) -> Verdict | None:
        replicas = self._node.replicas
        failed = [str(name) for name in replicas.offline]
        if failed:
            name, reason = next(iter(replicas.offline.items()))
            why = f"{few(failed)} can't be served from this node's disk, as {name}: {reason}"
            return Verdict(State.DISK_FAILED, f"{why}. Mend the disk, then restart the node")
        if replicas.is_disk_full:
            why = f"the disk of {replicas.store.data_dir} is full: writes are refused. Make room there"
            return Verdict(State.DISK_FULL, why)
        return None

    async def _of_copies(self) -> Verdict:
        node = self._node
        me, image = node.config.node_id, node.image
        out: list[str] = []
        leaderless = 0
        partitions = list(node.replicas.partitions)
        for number, (topic, index) in enumerate(partitions):
            state = image.partition(topic, index)
            is_mine = state is not None and me in state.replicas and me not in state.adding
            if state is not None and is_mine and me not in state.isr:
                out.append(f"{topic}-{index}")
                leaderless += state.leader == NO_LEADER
            if number % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
                await node.env.clock.sleep(0)
        if not out:
            count = len(partitions)
            return Verdict(State.READY, f"all {count} replicas of this node are in sync")
        why = f"{few(out)} of this node's {len(partitions)} replicas not in sync yet"
        if leaderless:
            why += f"; {leaderless} of them have no leader to catch up with: see to the other nodes"
        return Verdict(State.CATCHING_UP, why)

    # -- at the admin door -----------------------------------------------------------------------

    async def live(self, _request: HttpRequest) -> HttpReply:
        """The loop turns, or this would not be said. No more is asked: a cluster in trouble is not to be restarted."""
        return _reply(200, live=True, why="this node's loop turns")

    async def ready(self, _request: HttpRequest) -> HttpReply:
        state, why = verdict = await self._shared.result()
        status = 200 if verdict.is_ready else 503
        return _reply(status, ready=verdict.is_ready, state=state.value, why=why)


def _reply(status: int, **fields: object) -> HttpReply:
    return HttpReply(status, json.dumps(fields).encode() + b"\n")


Answers = Callable[[HttpRequest], Awaitable[HttpReply]]
