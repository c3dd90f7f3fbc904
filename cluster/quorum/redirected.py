"""pysyncobj's globals, redirected: its clock, dice, log, pickles, journal and sockets are ours or nobody's.

INVARIANT  while code of pysyncobj runs, its clock and its dice are those of the node that it runs for.
PREVENTS   two nodes of one simulation that roll each other's dice: the seed would not replay.
PROVED BY  tests/cluster/quorum/test_raft.py::test_each_node_has_its_own_clock_and_dice_though_pysyncobj_has_globals

Whoever imports this has them redirected, for the whole process.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from pysyncobj import syncobj

from ..base.ports import Env
from .journal import Journal

active_env: ContextVar[Env] = ContextVar("fencepost_quorum_env")


@contextlib.contextmanager
def in_world(env: Env) -> Iterator[None]:
    """While this lasts, pysyncobj's clock and dice are this Env's. No `await` inside: many nodes share a loop."""
    token = active_env.set(env)
    try:
        yield
    finally:
        active_env.reset(token)


def steady() -> float:
    return active_env.get().clock.steady()


class _Dice:
    """Stands for the module `random`."""

    def random(self) -> float:
        return active_env.get().rng.random()


class _Log:
    """Stands for a logger: what pysyncobj has to say is an event of the node that it says it for."""

    def warning(self, message: str, *values: object) -> None:
        active_env.get().log.warn("raft", message=message % values)

    error = critical = exception = warning

    def info(self, message: str, *values: object) -> None:
        active_env.get().log.info("raft", message=message % values)


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


class NoPoller:
    """Stands for a poller of sockets, of which there are none."""

    def poll(self, _timeout: float) -> None:
        return


# There are no hooks for these in SyncObjConf.
syncobj.monotonicTime = steady
syncobj.random = _Dice()
syncobj.pickle = _NoPickles()
syncobj.logger = _Log()
syncobj.createJournal = _as_it_is
