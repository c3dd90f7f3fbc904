"""Runs of transactions in which chance decides all, and what must hold when they are over.

    python tests/txn/chance_run.py FIRST..LAST     seeds up to and with the last; says what failed, and exits with 1
    python tests/txn/chance_run.py SEED --tell     one seed, with all that happens in it
    python tests/txn/chance_run.py FIRST..LAST --planted FAULT     with one of `chance_faults.py`

Each seed plays producers of one or two transactional ids, a coordinator that moves, leaders that change (in half of the seeds
without what they had not committed), messages that are late, lost or doubled, timeouts, groups, half messages, and
epochs that run out. In the end everything is delivered, and then:

- nothing hangs: no transaction is open or half ended, and readers of no partition wait for one;
- each batch is in one partition's log, once;
- what was acknowledged is in a log, and is shown if it was committed; of what was aborted nothing is;
- what was acknowledged in one transaction, or in those of a group, is shown together or not at all, whatever its
  producer heard of the end.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final

import pytest
from chance_client import Client, Shared, Told
from chance_cluster import PLACES, Network, Partition
from chance_coordinator import Coordinator
from chance_faults import FAULTS
from fencepost.txn.runtime.decision import Decision
from fencepost.txn.transactions.check_back_commands import AnswerCheck, Verdict
from fencepost.txn.transactions.commands import EndTransaction
from fencepost.txn.transactions.records import TransactionRecord
from fencepost.txn.transactions.transaction import DECIDED, OPEN, Phase

IDS: Final = [["g::a"], ["g::a", "g::b"]]  # with one, more of its producers meet
LENGTHS: Final = [500, 1_000, 3_000]  # how many things happen
PAUSES_MS: Final = {1: 20, 5: 20, 50: 20, 1_000: 3, 6_000: 1, 25_000: 0.5}  # how often
LAST_EPOCHS: Final = range(32_764, 32_767)  # the highest is kept for fencing


class Run:
    def __init__(self, seed: int, *, speaks: bool = False) -> None:
        self.chance = Random(seed)
        self.network = Network(self.chance, speaks=speaks)
        self.ids = self.chance.choice(IDS)
        self.takeovers = self.chance.choice([0.1, 0.3])
        loses_tails = self.network.maybe(0.5)
        partitions = {
            place: Partition(place, self.network, loses_tails=loses_tails) for place in PLACES
        }
        version = self.chance.choice([2, 2, 2, 2, 1, 0])  # transaction.version
        self.coordinator = Coordinator(self.network, partitions, version)
        self.shared = Shared(self.network, partitions, self.coordinator)

    def play(self) -> None:
        happens: dict[Callable[[], None], float] = {
            self._a_client_acts: 40,
            self._messages_arrive: 52,
            self._a_client_comes: 3,
            self._time_passes: 10,
            self.coordinator.move: 0.6,
            self._another_leads: 0.8,
            self._the_version_changes: 0.1,
            self._epochs_run_out: 0.03,
        }
        times = self.chance.choice(LENGTHS)
        for event in self.chance.choices([*happens], [*happens.values()], k=times):
            event()
        self._come_to_rest()

    # -- what happens ----------------------------------------------------------------------------

    def _a_client_acts(self) -> None:
        if self.shared.clients:
            self.chance.choice(self.shared.clients).act()

    def _messages_arrive(self) -> None:
        self.network.deliver(self.chance.choice([1, 3, 8]))

    def _a_client_comes(self) -> None:
        """Where none is left; or another is, which does not know that it is taken over."""
        name = self.chance.choice(self.ids)
        living = [each for each in self._clients_of(name) if not each.is_dead]
        if not living or self.network.maybe(self.takeovers):
            client = Client(self.shared, name, is_new=self.network.maybe(0.5))
            self.shared.clients.append(client)

    def _clients_of(self, name: str) -> list[Client]:
        return [each for each in self.shared.clients if each.transactional_id == name]

    def _time_passes(self) -> None:
        (passed_ms,) = self.chance.choices([*PAUSES_MS], [*PAUSES_MS.values()])
        self.coordinator.pass_ms(passed_ms)

    def _another_leads(self) -> None:
        place = self.chance.choice(PLACES)
        self.network.say("another leads", place)
        self.shared.partitions[place].elect()

    def _the_version_changes(self) -> None:
        self.coordinator.server_version = self.chance.choice([0, 1, 2])

    def _epochs_run_out(self) -> None:
        """As if so many producers had come and gone."""
        transaction = self.coordinator.machine.transactions.get(self.chance.choice(self.ids))
        if transaction is None or transaction.phase not in (Phase.EMPTY, Phase.COMPLETE_COMMIT):
            return
        before = [
            each for each in self._clients_of(transaction.transactional_id) if not each.is_dead
        ]
        if transaction.producer_epoch >= 32_000 or any(each.is_busy for each in before):
            return
        epoch = self.chance.choice(LAST_EPOCHS)
        later = replace(transaction, producer_epoch=epoch, last_producer_epoch=-1)
        self.coordinator.take(Decision(records=[TransactionRecord(later)]))
        for each in before:
            each.die("its epoch is long past")

    # -- how it ends -----------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        self._deliver_all()
        for each in self.shared.clients:
            each.is_done(committed=None)
        for name, half in list(self.coordinator.checks.halves.items()):
            if not half.is_decided:
                command = AnswerCheck(
                    transactional_id=name,
                    half_id=half.half_id,
                    verdict=Verdict.ROLLBACK,
                    by="a person",
                )
                self.coordinator.ask(command, lambda _: None)
        for transaction in list(self.coordinator.machine.transactions.values()):
            if transaction.phase is Phase.PREPARED:  # KIP-939, and nobody came to end it
                abort = EndTransaction(
                    transactional_id=transaction.transactional_id,
                    **transaction.identity._asdict(),
                    commit=False,
                )
                self.coordinator.ask(abort, lambda _: None)
        self._deliver_all()

    def _deliver_all(self) -> None:
        """And every transaction that is open times out."""
        for _ in range(40):
            self.coordinator.pass_ms(1_000)
            self.network.deliver(500)

    def problems(self) -> Iterator[str]:
        """What does not hold of what `play` has left."""
        yield from self._what_hangs()
        shown: dict[str, bool | None] = {}
        for place, partition in self.shared.partitions.items():
            for name, is_shown in partition.shown():
                if name in shown:
                    yield f"DOUBLED {name}, again in {place}"
                if is_shown is None:
                    yield f"HANGING {name} in {place}: no marker ends it"
                shown[name] = is_shown
        for told in self.shared.told:
            yield from problems_of(told, shown)

    def _what_hangs(self) -> Iterator[str]:
        if not self.network.is_quiet:
            yield "HANGING messages that are sent again for ever"
        for transaction in self.coordinator.machine.transactions.values():
            if transaction.phase in DECIDED | OPEN:
                yield f"HANGING {transaction}"
        for place, partition in self.shared.partitions.items():
            if partition.producers.first_unstable_offset is not None:
                yield f"HANGING readers of {place}, for {partition.producers.oldest_open()}"


def problems_of(told: Told, shown: dict[str, bool | None]) -> Iterator[str]:
    missing = [name for name in told.acknowledged if name not in shown]
    if missing:
        yield f"LOST {missing} of {told}: in no log"
    found = {name: shown.get(name, False) for name in told.acknowledged}
    if told.committed and not all(found.values()):
        yield f"LOST {told}: {found}"
    if told.committed is False and any(shown.get(name) for name in told.sent):
        yield f"ABORTED AND SHOWN {told}"
    if len(set(found.values())) > 1:
        yield f"TORN {told}: {found}"


def run(seed: int, *, speaks: bool = False) -> Counter[str]:
    """Play it, and count what producers were told. Raises an AssertionError when something does not hold."""
    played = Run(seed, speaks=speaks)
    played.play()
    problems = [*played.problems()]
    assert not problems, "\n".join(problems)
    words = {True: "committed", False: "aborted", None: "unknown"}
    return Counter(words[told.committed] for told in played.shared.told)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Play transactions by chance.")
    parser.add_argument("seeds", help="FIRST..LAST, or one")
    parser.add_argument("--tell", action="store_true", help="say all that happens")
    parser.add_argument("--planted", choices=[plant.__name__ for plant in FAULTS])
    asked = parser.parse_args(arguments)
    first, _, last = asked.seeds.partition("..")
    told: Counter[str] = Counter()
    failed = 0
    with pytest.MonkeyPatch.context() as patch:
        for plant in FAULTS:
            if plant.__name__ == asked.planted:
                plant(patch)
        for seed in range(int(first), int(last or first) + 1):
            try:
                told += run(seed, speaks=asked.tell)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other seeds are to be seen
                failed += 1
                (place,) = traceback.extract_tb(error.__traceback__)[-1:]
                print(f"seed {seed}: {error!r} ({place.name}:{place.lineno})", flush=True)
    print(f"{failed} seeds failed; transactions of the others: {dict(told)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
