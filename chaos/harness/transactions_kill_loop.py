"""A real cluster under transactions whose leaders, coordinators and clients are killed, paused and doubled, then the verdict.

    python -m fencepost.chaos.harness.transactions_kill_loop --seconds 60 --seed 7

Tellers move money, appenders send and poll, subscribers do so as members of one group, auditors read along: each a process
of its own with librdkafka (`workloads/txn_worker.py`). After each fault every one of them must commit again, and some member of
the group what it has consumed. At the end no transaction may be
open, and all replicas must hold the same bytes. Exit codes as in `loop_frame.py`.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from fencepost.clients.transactional.kept_topics import make_topic

from ..checkers.history import FINAL
from ..checkers.txn_history import Txn, Txns, to_line
from ..checkers.txn_verdict import judge
from ..checkers.worked import counted, lacking
from ..runs.judging import TRANSACTIONS_LOOP
from ..workloads.txn_keys import key_of
from ..workloads.txn_positions import Untold, all_positions
from ..workloads.txn_process import CLIENT, DAMAGE, HANGS, Damaged, place_of, polled_of
from . import cluster_faults, loop_frame
from .cluster_faults import Fault, Faults
from .cluster_kill_loop import holders_of, replicas_differ
from .growing import of_notes
from .kept_run import KeptRun
from .local_cluster import LocalCluster, wait_for
from .loop_frame import NAME_WIDTH, NoProgress, Outcome, lines_of, run_loop, wait_for_progress
from .processes import DidNotStart, Process
from .txn_workers import Worker, Workers

TIMEOUT_MS: Final = 6_000  # of a transaction
SETTINGS: Final = ("transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",)
TWIN_S: Final = 20.0  # for a second client to begin a transaction
LOOK_S: Final = 0.02
STABLE_S: Final = 60.0  # for what was left open to time out
READ_S: Final = 120.0
SEGMENT_BYTES: Final = "1048576"


class TxnFaults(Faults):
    """Those of the nodes, and of the clients."""

    load: Workers
    twins = 0

    def _anyone(self) -> Worker:
        return self.rng.choice([each for each in self.load.all if each.role != "auditor"])

    def _coordinator(self) -> int:
        name = self._anyone().transactional_id
        return self._known("a coordinator", lambda: self.cluster.coordinator_of(name))

    def kill_coordinator(self, name: str) -> None:
        self.lose(name, self._coordinator())

    def pause_coordinator(self, name: str) -> None:
        self.pause(name, self._coordinator(), self.rng.uniform(4.0, 8.0))

    def kill_client(self, name: str) -> None:
        worker = self._anyone()
        self.kept.hit(what=worker.transactional_id)
        self.load.kill(worker)
        time.sleep(self.rng.uniform(0.0, 1.0))
        self.load.start(worker)
        self.took_s[name].append(self.load.progress())

    def pause_client(self, name: str) -> None:
        """Sometimes for longer than its transaction may last."""
        worker = self._anyone()
        self.kept.hit(what=worker.transactional_id)
        self.load.pause(worker)
        time.sleep(self.rng.uniform(0.5, 1.5 * TIMEOUT_MS / 1000))
        self.load.resume(worker)
        self.took_s[name].append(self.load.progress())

    def double_client(self, name: str) -> None:
        """Two with one id, while both run or while the first sleeps. Nobody was struck before the second transacts."""
        worker = self._anyone()
        asleep = self.rng.random() < 0.5
        if asleep:
            self.load.pause(worker)
        self.twins += 1
        twin = self.load.twin(worker, self.twins)
        try:
            if has_begun(twin):
                self.kept.hit(what=worker.transactional_id)
            time.sleep(self.rng.uniform(1.0, 4.0))
            if asleep:
                self.load.resume(worker)
                time.sleep(self.rng.uniform(0.0, 1.0))
        finally:
            twin.kill()
        self.took_s[name].append(self.load.progress())


def has_begun(twin: Process) -> bool:
    """A transaction, by its notes, or within `TWIN_S`."""
    notes, late = twin.log.with_suffix(".jsonl"), time.monotonic() + TWIN_S
    while not (has := notes.exists() and b'"f": "txn"' in notes.read_bytes()):
        if not twin.alive or time.monotonic() > late:
            break
        time.sleep(LOOK_S)
    return has


FAULTS: Final[dict[str, Fault]] = {
    **cluster_faults.FAULTS,
    "kill coordinator": TxnFaults.kill_coordinator,
    "pause coordinator": TxnFaults.pause_coordinator,
    "kill client": TxnFaults.kill_client,
    "pause client": TxnFaults.pause_client,
    "double client": TxnFaults.double_client,
}


# -- the end ---------------------------------------------------------------------------------------


class LastLook:
    """What is there when no transaction is open any more."""

    def __init__(self, bootstrap: str, keys: Sequence[str]) -> None:
        self.bootstrap = bootstrap
        self.keys = keys
        self.untold: Untold = {}

    def _ends(self, isolation: IsolationLevel) -> dict[str, int]:
        # A client asks with the leader epoch that it once heard of, whatever it is told: so a new one each time.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        asked = {place_of(key): OffsetSpec.latest() for key in self.keys}
        answers = admin.list_offsets(asked, isolation_level=isolation)
        ends = {
            key_of(place.topic, place.partition): future.result(10).offset
            for place, future in answers.items()
        }
        # What librdkafka gives, and no error, where a leader does not answer.
        if untold := sorted(key for key, offset in ends.items() if offset == OFFSET_INVALID):
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"no leader of {untold} answers")
            )
        return ends

    def wait_stable(self) -> dict[str, int]:
        """The ends. `NoProgress` names the partitions that still have something open."""
        ends: dict[str, int] = {}
        open_ones: list[str] = []

        def stable() -> bool:
            try:
                ends.update(self._ends(IsolationLevel.READ_UNCOMMITTED))
                stable_ends = self._ends(IsolationLevel.READ_COMMITTED)
            except KafkaException:
                return False
            open_ones[:] = [f"{key} at {at}" for key, at in stable_ends.items() if at != ends[key]]
            return not open_ones

        try:
            wait_for_progress("no transaction is open", stable, STABLE_S)
        except NoProgress as error:
            raise NoProgress(f"{error}: {open_ones}") from error
        return ends

    def _consumer(self, group: str) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group}
        reading = {"isolation.level": "read_committed", "enable.partition.eof": True}
        return Consumer(CLIENT | settings | reading | {"enable.auto.commit": False})

    def read_all(self, ends: dict[str, int]) -> Txn:
        op = Txn("read", "ok", FINAL, began_s=time.monotonic(), positions=ends)
        left = {key for key, end in ends.items() if end > 0}
        consumer = self._consumer("unused")
        consumer.assign([place_of(key, 0) for key in ends])

        def to_the_ends() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                error = message.error()
                key = key_of(message.topic() or "", message.partition() or 0)
                if error is None:
                    op.polls.append(polled_of(message))
                elif error.code() in DAMAGE:
                    raise Damaged(f"{key} at {message.offset()}: {error}")
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif (message.offset() or 0) >= ends[key]:
                    left.discard(key)
            return not left

        wait_for("all is read", to_the_ends, READ_S)
        consumer.close()
        op.ended_s = time.monotonic()
        return op

    def positions(self, history: Txns) -> Txns:
        """What the groups of the appenders have committed, each with the number of its transaction."""
        groups: dict[str, set[str]] = {}
        for op in history:
            for place in op.offsets:
                group, _, key = place.partition("|")
                groups.setdefault(group, set()).add(key)
        found = []
        asked = {group: sorted(keys) for group, keys in sorted(groups.items())}
        for op, untold in all_positions(self._consumer, asked):
            found.append(op)
            self.untold |= untold
        return found


def _of_final_read(history: Txns) -> Txn:
    return next(op for op in history if op.f == "read" and op.process == FINAL)


def drop_one(history: Txns) -> None:
    """As if one side of a transfer had been lost."""
    del _of_final_read(history).polls[0]


def double_one(history: Txns) -> None:
    """As if a retry had been written a second time."""
    polls = _of_final_read(history).polls
    polls.append(polls[0]._replace(offset=polls[0].offset + 1_000_000))


def forget_an_abort(history: Txns) -> None:
    """As if what is read had been aborted."""
    writer = _of_final_read(history).polls[0].writer
    next(op for op in history if op.number == writer).type = "fail"


SPOILS: Final[dict[str, Callable[[Txns], None]]] = {
    "drop": drop_one,
    "double": double_one,
    "abort": forget_an_abort,
}


# -- the run ---------------------------------------------------------------------------------------


def create_topics(bootstrap: str, names: Sequence[str], partitions: int, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    small = {"segment.bytes": SEGMENT_BYTES}
    for name in names:
        make_topic(admin, NewTopic(name, partitions, copies, config=small))


def run(chosen: argparse.Namespace, data: Path, kept: KeptRun) -> Outcome:
    with LocalCluster(data, nodes=chosen.nodes, settings=[*SETTINGS, *chosen.set]) as cluster:
        flags = {"bootstrap": cluster.bootstrap, "partitions": chosen.partitions}
        flags |= {"rate": chosen.rate, "seed": chosen.seed, "timeout-ms": TIMEOUT_MS}
        notes = data.parent / f"{data.name}-notes"
        notes.mkdir(parents=True, exist_ok=True)
        named = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        workers = Workers(notes, named)
        faults = TxnFaults(cluster, workers, random.Random(chosen.seed), kept)
        keys = [key_of(topic, n) for topic in workers.topics for n in range(chosen.partitions)]
        try:
            create_topics(
                cluster.bootstrap, workers.topics, chosen.partitions, min(3, chosen.nodes)
            )
            kept.begin()
            workers.hire("teller", chosen.producers)
            workers.hire("appender", chosen.producers)
            workers.hire("subscriber", chosen.producers)
            workers.hire("auditor", 1)
            some = {name: FAULTS[name] for name in chosen.fault or FAULTS}
            served = lambda: sum(workers.ok.values())  # noqa: E731 - read from another thread
            with kept.growing(of_notes(workers.notes)):
                with kept.watch(cluster, workers.topics, served):
                    faults.run(chosen.seconds, some)
                workers.stop()
            faults.wait_in_sync()
            look = LastLook(cluster.bootstrap, keys)
            last = look.read_all(look.wait_stable())
            history = workers.history()
            history += [last, *look.positions(history)]
            holders = {
                topic: holders_of(cluster, chosen.partitions, topic) for topic in workers.topics
            }
        except (TimeoutError, DidNotStart, NoProgress):
            print(cluster.said(), file=sys.stderr)
            raise
        finally:
            workers.kill_all()
        exit_code = cluster.stop()
        broken = [f"the clean stop ended with {exit_code}"] if exit_code else []
        for topic in workers.topics:
            broken += replicas_differ(cluster, holders[topic], topic)
    if chosen.spoil:
        SPOILS[chosen.spoil](history)
    lines = lines_of(faults.counts, faults.took_s, "all commit again")
    left = sum(op.why.startswith(HANGS) for op in history)
    lines.append(f"{'clients that hung':>{NAME_WIDTH}}  {workers.hung + left}")
    lacks = lacking(TRANSACTIONS_LOOP, (), counted(TRANSACTIONS_LOOP, history))
    told = map(to_line, history)
    outcome = Outcome(lines, judge(history), told, [*broken, *workers.ended], lacks)
    if look.untold and outcome.good:
        raise TimeoutError(f"nobody told what groups have committed: {look.untold}")
    return outcome


def parser() -> argparse.ArgumentParser:
    text = "kill, pause and double nodes and clients under transactions."
    made = loop_frame.options(text, producers=3, partitions=6, rate=20, spoils=SPOILS)
    made.add_argument("--nodes", type=int, default=3)
    made.add_argument("--fault", action="append", choices=list(FAULTS), help="only this; repeats")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return run_loop(TRANSACTIONS_LOOP, parser().parse_args(arguments), run)


if __name__ == "__main__":
    sys.exit(main())
