"""A cluster under transactions while everything fails that can: nothing torn, lost, doubled or read before its time.

    python -m fencepost.chaos.sim.transactions --seeds 0..2000 [--faults hunt,pause] [--seconds 8] [--nodes 3] [--jobs 2]

Four kinds of clients, all with the wire client of `workloads/txn_client.py`, of the old protocol, the new one or both: tellers
who move money, Jepsen's processes that append and poll, and pipelines that consume, transform and produce, kept apart by
transactional id or by group; some have a twin with the same id, some dawdle longer than their timeout, some crash.
Topics that they write to are deleted and made again. At the end everything is healed, every transaction has to end
within a bounded time, and the history is judged (`checkers/txn_verdict.py`).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from .cluster import TOLD_EVERY, root_of, seeds_of
from .cluster_faults import AT_ONCE_MAX
from .transaction_faults import TRANSACTION_FAULTS
from .transactions_run import WORKLOADS, TransactionsRun, Wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to. `failure` is for people, empty when all was well."""

    wanted: Wanted
    failure: str
    acknowledged: int
    counts: dict[str, int]
    virtual_s: float
    cpu_s: float
    digest: str
    moments: dict[str, int]


def run_seed(wanted: Wanted) -> Outcome:
    run = TransactionsRun(wanted)
    failure, began = "", time.process_time()
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 - every failure of a seed is reported, and fails the campaign
        failure = (
            f"seed {wanted.seed}: {root_of(error)!r}\n{run.explain()}\nagain: {wanted.command}"
        )
    return Outcome(
        wanted,
        failure,
        run.acknowledged,
        run.verdict.counts if run.verdict is not None else {},
        run.world.loop.time(),
        time.process_time() - began,
        run.world.trace.digest(),
        run.watch.seen,
    )


def _outcomes(wanted: list[Wanted], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run_seed, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, wanted)


def _asked(arguments: Sequence[str] | None) -> tuple[list[Wanted], int]:
    parser = argparse.ArgumentParser(
        prog="python -m fencepost.chaos.sim.transactions", description=__doc__
    )
    add = parser.add_argument
    add("--seeds", default="0..20", metavar="A..B", help="from A up to, not including, B")
    add("--seconds", type=float, default=8.0, help="virtual seconds of faults")
    add("--faults", default="", help=f"some of {','.join(TRANSACTION_FAULTS)}")
    add("--nodes", type=int, default=0, help="how many; the seed says when not")
    add("--workloads", default="", help=f"some of {','.join(WORKLOADS)}; the seed says when not")
    add("--protocol", default="", choices=("", "old", "new"), help="of all clients")
    add("--config", action="append", default=[], metavar="NAME=VALUE", help="of every node")
    add("--at-once", type=int, default=AT_ONCE_MAX, help="faults at one time")
    add("--jobs", type=int, default=1, help="seeds at one time")
    asked = parser.parse_args(arguments)
    wanted = [
        Wanted(
            seed,
            asked.seconds,
            asked.faults,
            asked.nodes,
            asked.workloads,
            asked.protocol,
            tuple(asked.config),
            asked.at_once,
        )
        for seed in seeds_of(asked.seeds)
    ]
    return wanted, asked.jobs


def main(arguments: Sequence[str] | None = None) -> int:
    wanted, jobs = _asked(arguments)
    began, virtual_s, cpu_s = time.monotonic(), 0.0, 0.0
    failed: list[int] = []
    counts: Counter[str] = Counter()
    moments: Counter[str] = Counter()
    for number, outcome in enumerate(_outcomes(wanted, jobs), 1):
        virtual_s += outcome.virtual_s
        cpu_s += outcome.cpu_s
        counts.update(outcome.counts)
        moments.update(outcome.moments)
        if outcome.failure:
            failed.append(outcome.wanted.seed)
            print(outcome.failure, file=sys.stderr, flush=True)
        if number % TOLD_EVERY == 0:
            took = time.monotonic() - began
            print(f"{number} seeds, {len(failed)} failed, {took:,.0f} s", flush=True)
        if len(wanted) == 1:
            print(f"digest {outcome.digest}")
    print(f"transactions: {dict(counts)}; {dict(moments)}")
    print(
        f"{virtual_s:,.0f} virtual seconds in {time.monotonic() - began:,.0f} real ones, of which"
        f" {cpu_s:,.0f} of a processor: {virtual_s / cpu_s:.1f} to 1"
    )
    print(f"{len(failed)} of {len(wanted)} seeds failed {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
