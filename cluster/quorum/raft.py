"""pysyncobj's SyncObj, held: our clock, our dice, our journal, our snapshots, no pickles, no files, sockets or threads.

What could not be handed in is overridden, each with its reason. Names that begin with `_SyncObj__` are SyncObj's own
private ones (0.3.17); `tests/cluster/quorum/test_raft.py` fails when a version of it has other ones.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from pysyncobj import SyncObj, SyncObjConf, syncobj
from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE
from pysyncobj.node import Node

from ..base.ids import BrokerId
from ..base.ports import Env
from .journal import Journal
from .raft_files import Snapshot
from .segment_format import Entry
from .transport import QuorumTransport

SUCCESS: Final = FAIL_REASON.SUCCESS
# What surely did not happen: the entry is in nobody's log, or another took its place.
NEVER_HAPPENED: Final = frozenset(
    {
        FAIL_REASON.QUEUE_FULL,
        FAIL_REASON.MISSING_LEADER,
        FAIL_REASON.DISCARDED,
        FAIL_REASON.NOT_LEADER,
        FAIL_REASON.REQUEST_DENIED,
    }
)

_REGULAR: Final = 0  # pysyncobj's kinds of commands
_NO_OP: Final = 1

# --- the module's globals -------------------------------------------------------------------------

_world: ContextVar[Env] = ContextVar("fencepost_quorum_world")


@contextlib.contextmanager
def in_world(env: Env) -> Iterator[None]:
    """While this lasts, pysyncobj's clock and dice are this Env's. No `await` inside: many nodes share a loop."""
    token = _world.set(env)
    try:
        yield
    finally:
        _world.reset(token)


def _steady() -> float:
    return _world.get().clock.steady()


class _Dice:
    """Stands for the module `random`."""

    def random(self) -> float:
        return _world.get().rng.random()


class _Log:
    """Stands for a logger: what pysyncobj has to say is an event of the node that it says it for."""

    def warning(self, message: str, *values: object) -> None:
        _world.get().log.warn("raft", message=message % values)

    error = critical = exception = warning

    def info(self, message: str, *values: object) -> None:
        _world.get().log.info("raft", message=message % values)


class _NoPickles:
    """Stands for the module `pickle`: what came from a disk or a peer is never unpickled."""

    def dumps(self, *_: object) -> bytes:
        raise AssertionError("pysyncobj pickles")

    def loads(self, *_: object) -> object:
        raise AssertionError("pysyncobj unpickles")


def _as_it_is(journal: Journal) -> Journal:
    """Stands for `createJournal`: the configuration's `journalFile` is our journal."""
    assert isinstance(journal, Journal)
    return journal


class _NoPoller:
    """Stands for a poller of sockets, of which there are none."""

    def poll(self, _timeout: float) -> None:
        return


# There are no hooks for these in SyncObjConf.
syncobj.monotonicTime = _steady
syncobj.random = _Dice()
syncobj.pickle = _NoPickles()
syncobj.logger = _Log()
syncobj.createJournal = _as_it_is


# --- nodes, snapshots -----------------------------------------------------------------------------


class Voter(Node):  # type: ignore[misc]  # pysyncobj has no types
    """A voter by its number: SyncObj keeps nodes in sets, and sets of numbers have one order in every process."""

    def __init__(self, node_id: BrokerId) -> None:
        super().__init__(node_id)

    def __str__(self) -> str:
        return str(self.id)


class Snapshots:
    """Stands for SyncObj's Serializer: it asks for a snapshot here, the shell writes it between two ticks."""

    def __init__(self, take: Callable[[], bytes]) -> None:
        self._take = take
        self._state = SERIALIZER_STATE.NOT_SERIALIZING
        self._id: int | None = None
        self.loaded: Snapshot | None = None
        self.to_write: Snapshot | None = None

    def serialize(self, data: tuple[Any, Any, Any, Any], id_: int) -> None:
        """`data` is (attributes, last entry, the one before, nodes); the machine's state is what counts."""
        _, last, previous, _ = data
        self.to_write = Snapshot(tuple(previous), tuple(last), self._take())
        self._state, self._id = SERIALIZER_STATE.SERIALIZING, id_

    def written(self, *, well: bool) -> None:
        self.to_write = None
        self._state = SERIALIZER_STATE.SUCCESS if well else SERIALIZER_STATE.FAILED

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802
        state = self._state
        if state in (SERIALIZER_STATE.SUCCESS, SERIALIZER_STATE.FAILED):
            self._state = SERIALIZER_STATE.NOT_SERIALIZING
        return state, self._id

    def deserialize(self) -> tuple[None, Entry, Entry, list[Any]]:
        """The shell has restored the machine already; SyncObj learns where its log begins."""
        assert self.loaded is not None
        return None, Entry(*self.loaded.last), Entry(*self.loaded.previous), []

    def getTransmissionData(self, _node: Node) -> None:  # noqa: N802
        raise AssertionError("a voter alone has nobody to send its snapshot to")

    def setTransmissionData(self, _data: object) -> bool:  # noqa: N802
        raise AssertionError("a voter alone has nobody to get a snapshot from")

    def cancelTransmisstion(self, _node: Node) -> None:  # noqa: N802  # its spelling
        """Nothing is under way."""


# --- the subclass ---------------------------------------------------------------------------------


def _settings(journal: Journal) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,  # our loop ticks
        journalFile=journal,
        # False opens a pipe. The shell sends without waiting for a batch all the same.
        appendEntriesUseBatch=True,
        # Above any entry: SyncObj would send a larger one in pickled pieces.
        appendEntriesBatchSizeBytes=64 * 1024 * 1024,
        # The shell says when: SyncObj's own conditions are never met.
        logCompactionMinEntries=2**62,
        logCompactionMinTime=2**62,
        commandsQueueSize=0,  # no bound: the shell bounds what it hands in
        dynamicMembershipChange=False,
    )


class Raft(SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    """SyncObj without replicated methods: an entry is a kind and the bytes that `apply` is given.

    SyncObj applies a method that raised again and again, and nothing behind it, ever; `apply` must be total.
    """

    def __init__(
        self,
        node_id: BrokerId,
        others: list[BrokerId],
        journal: Journal,
        transport: QuorumTransport,
        snapshots: Snapshots,
        apply: Callable[[bytes], object],
    ) -> None:
        self._apply = apply
        self.journal = journal
        nodes = [Voter(each) for each in others]
        super().__init__(Voter(node_id), nodes, conf=_settings(journal), transport=transport)
        self._poller = _NoPoller()
        self._SyncObj__serializer = snapshots
        if snapshots.loaded is not None:
            self._SyncObj__loadDumpFile(clearJournal=False)
            assert self.raftLastApplied == snapshots.loaded.last[1], "the snapshot was not taken up"

    def elect_at_once(self) -> None:
        """A voter alone has nobody to wait for."""
        self._SyncObj__raftElectionDeadline = float("-inf")

    def submit(self, entry: bytes, callback: Callable[[object, int], None]) -> None:
        """To be added to the log at the next tick, if this node leads then."""
        self._applyCommand(entry, callback, _REGULAR)

    @property
    def leader_id(self) -> BrokerId | None:
        leader = self._getLeader()
        return None if leader is None else leader.id

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:  # noqa: N802
        """SyncObj's unpickles what it applies, and numbers methods by their place in a sorted list."""
        kind = command[0]
        if kind == _NO_OP:
            return None
        assert kind == _REGULAR, f"an entry of kind {kind} in the metadata log"
        return self._apply(command[1:])
