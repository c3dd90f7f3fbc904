"""Many plans on all cores, one process a core; what comes back is told as it comes.

Ctrl-C and SIGTERM end it with what was seen (`HeardAtLast`). A worker that dies takes the seeds that were on their way with it: they are called
unknown, and fail the campaign.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from ..runs.interrupts import AGAIN, SIGNALS, HeardBehind, raise_what_was_lost
from ..sim.plan import Plan
from .again import run_and_compare
from .campaign import Outcome, run_plan

Item = TypeVar("Item")
Result = TypeVar("Result")
HEAR_S: Final = 0.2  # so soon a signal is heard, while no worker has ended
AHEAD: Final = 2  # plans a worker has waiting, so that it never waits itself


@dataclass(slots=True)
class Totals:
    """What a campaign came to so far."""

    seeds: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    acknowledged: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    different: int = 0  # those whose beginning was not the same in another process
    failed: list[Outcome] = field(default_factory=list)
    interrupted: bool = False
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.acknowledged += outcome.acknowledged
        self.events += outcome.events
        self.counts.update(outcome.counts)
        self.different += bool(outcome.differs)
        if outcome.failure:
            self.failed.append(outcome)

    @property
    def real_s(self) -> float:
        return time.monotonic() - self.began

    def __str__(self) -> str:
        speed = f"{self.virtual_s / self.cpu_s:.0f} to 1 on a core" if self.cpu_s else "none"
        return (
            f"{self.seeds:,} seeds, {self.virtual_s:,.0f} virtual seconds in {self.real_s:,.1f} real ones ({speed}),"
            f" {self.acknowledged:,} acknowledged, {len(self.failed)} failed"
        )


def run_all(
    plans: Iterable[Plan], jobs: int, tell: Callable[[Outcome], None], *, twice_s: int = 0
) -> Totals:
    """The first `twice_s` virtual seconds of each are run in two processes, and compared."""
    totals = Totals()
    try:
        for outcome in outcomes(plans, jobs, twice_s=twice_s):
            totals.add(outcome)
            tell(outcome)
    except KeyboardInterrupt:
        totals.interrupted = True
    return totals


def outcomes(plans: Iterable[Plan], jobs: int, *, twice_s: int = 0) -> Iterator[Outcome]:
    """In the order in which they end."""
    run = partial(run_and_compare, seconds=twice_s) if twice_s else run_plan
    for plan, outcome in spread(run, plans, jobs):
        if isinstance(outcome, Outcome):
            yield outcome
        else:
            why = f"a worker died, and with it whatever became of this seed: {outcome}"
            yield Outcome(plan, why, "unknown")


def spread(
    work: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Iterator[tuple[Item, Result | BrokenProcessPool]]:
    """Each item with what `work` made of it, in the order in which they end; a job a process, or this one if it is one."""
    if jobs == 1:
        for item in items:
            try:
                result = work(item)
            finally:
                raise_what_was_lost()
            yield item, result
        return
    waiting = iter(items)
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_belong_to_parent)
    running: dict[Future[Result], Item] = {}
    try:
        while True:
            with HeardBehind():
                for item in islice(waiting, AHEAD * jobs - len(running)):
                    running[pool.submit(work, item)] = item
                done = wait(running, HEAR_S, FIRST_COMPLETED).done
            if not running:
                return
            for future in done:
                item = running.pop(future)
                try:
                    yield item, future.result()
                except BrokenProcessPool as broken:
                    yield item, broken
    finally:
        # Whatever comes now cuts nothing off.
        before = [(each, signal.signal(each, signal.SIG_IGN)) for each in (*SIGNALS, AGAIN)]
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children() if running else ():
            worker.terminate()
        with contextlib.suppress(BrokenProcessPool):
            pool.shutdown(wait=True)
        for each, handler in before:
            signal.signal(each, handler)


def _belong_to_parent() -> None:
    """Ctrl-C is the parent's to hear; and when somebody kills it, nobody waits for this worker any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "workers have a parent"

    def leave() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
