"""What a load lends to the faults: stopped at the right moment, doubled, and one that is old when the load begins."""

import argparse
import json
import random
import threading
import time
from types import SimpleNamespace
from typing import Self

import pytest
from fencepost.chaos.faults.fault import LeftOut
from fencepost.chaos.faults.zombies import Taken
from fencepost.chaos.runs import lent
from fencepost.chaos.runs.clients import TWIN_SLOT, Client, Clients, stands_still
from fencepost.chaos.runs.folder import HISTORY, RunFolder
from fencepost.chaos.runs.lent import OLD, Lent, age, has_elder_of
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.workloads import QUEUE_ELDER, WORKLOADS
from support.module_clock import set_clock

# Ends an operation each tenth of a second; told to sleep, it stops itself, or so long after with `--awake`, and then notes
# that it was woken.
STAND_IN = """
import json, os, signal, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if words["--awake"] == "0":
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
else:
    def stop_late(*_):
        time.sleep(float(words["--awake"]))
        os.kill(os.getpid(), signal.SIGSTOP)
        open(words["--notes"] + ".woken", "w").close()
    signal.signal(signal.SIGUSR1, stop_late)
if words["--slot"] == words["--mute"]:
    time.sleep(60)
process = f"queue-{words['--slot']}.{words['--life']}.1"
for number in range(600):
    now = time.monotonic()
    line = {"f": "txn", "type": "ok", "process": process, "number": number,
            "sends": [["t3-1", 8, number, 0]], "began_s": now, "ended_s": now}
    with open(words["--notes"], "a") as notes:
        notes.write(json.dumps(line) + "\\n")
    time.sleep(0.1)
"""


class Running:
    """Clients that are ticked, as a run does."""

    def __init__(
        self, folder, awake: float = 0.0, faults: tuple[str, ...] = ("epochs",), mute: int = -1
    ) -> None:
        self.folder = RunFolder(folder / "run")
        self.folder.create({})
        self.clients = Clients(
            self.folder,
            count=2,
            module="stand_in",
            words=lambda *_: ["--awake", str(awake), "--mute", str(mute)],
            seed=1,
            life_s=0.0,
        )
        self.lent = Lent(self.clients, Plan(faults=faults), WORKLOADS["queue"])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._over.wait(0.02):
            self.clients.tick()

    def __enter__(self) -> Self:
        self.clients.start()
        self._thread.start()
        until(lambda: all(each.name for each in self.clients.all))
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()
        self.clients.kill()

    def processes(self) -> set[str]:
        lines = (self.folder.path / HISTORY).read_text().splitlines()
        return {json.loads(line)["process"] for line in lines}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_a_client_is_stopped_between_its_sends_and_its_commit(stand_in) -> None:
    """Where that is, it knows itself; the fault has struck when it is seen to stand still."""
    with Running(stand_in) as run:
        asleep = run.lent.pause(random.Random(1))
        (client,) = [each for each in run.clients.all if each.paused]
        assert client is asleep and str(asleep) == f"client {client.slot} ({client.name})"
        assert stands_still(client.process.pid)
        time.sleep(0.2)
        assert stands_still(client.process.pid), "nobody wakes it before its time"
        other = run.lent.pause(random.Random(1))
        run.lent.hooks().resume(asleep)
        until(lambda: not stands_still(client.process.pid))
        assert not client.paused and run.clients.ended == []
        time.sleep(0.1)
        assert other.paused and stands_still(other.process.pid), "it is another fault's"
        run.clients.wake_all()
        until(lambda: not stands_still(other.process.pid))


@pytest.mark.slow
def test_who_comes_to_no_commit_was_not_struck_and_is_woken_when_it_stops_too_late(
    stand_in, monkeypatch
) -> None:
    monkeypatch.setattr(lent, "SLEEPS_S", 0.1)
    with Running(stand_in, awake=0.5) as run:
        with pytest.raises(LeftOut, match="came to no commit within"):
            run.lent.pause(random.Random(1))
        until(lambda: list(stand_in.rglob("*.woken")))


@pytest.mark.slow
def test_a_twin_has_the_id_of_a_client_for_as_long_as_it_was_asked_for(stand_in) -> None:
    with Running(stand_in) as run:
        chosen = run.lent.twin(random.Random(1), 2.0)
        with pytest.raises(LeftOut, match="a twin already"):
            run.lent.twin(random.Random(2), 1.0)
        assert chosen in {QUEUE_ELDER, run.clients.all[1].name}
        twin = run.clients._twin
        assert twin.process.command[-2:] == ["--transactional-id", chosen]
        until(lambda: run.clients._twin is None)
        assert not twin.process.alive and run.clients.crashes == 0
        assert f"queue-{TWIN_SLOT}.1.1" in run.processes(), "what it did is in the history"
        run.lent.twin(random.Random(3), 0.1)
        assert f"queue-{TWIN_SLOT}.2.1" in run.processes(), "its time begins when it transacts"
    assert not any(each.process.alive for each in run.clients.all)


@pytest.mark.slow
def test_a_twin_that_comes_to_no_transaction_was_none(stand_in, monkeypatch) -> None:
    """It has fenced nobody: a process takes seconds to be there on a busy machine, and some faults are over by then."""
    monkeypatch.setattr(lent, "TWIN_S", 0.5)
    with Running(stand_in, mute=TWIN_SLOT) as run:
        with pytest.raises(LeftOut, match="came to no transaction within"):
            run.lent.twin(random.Random(1), 1.0)
        until(lambda: run.clients._twin is None)


def test_a_load_in_which_nobody_transacts_lends_nobody(stand_in) -> None:
    run = Running(stand_in)
    for ask in (
        lambda: run.lent.pause(random.Random(1)),
        lambda: run.lent.twin(random.Random(1), 1),
    ):
        with pytest.raises(LeftOut, match="no client of this load transacts now"):
            ask()


def lends(stand_in, workload: str, *clients: Client) -> Lent:
    """Of a run in its twentieth second."""
    run = Running(stand_in)
    run.clients.all = list(clients)
    run.clients.began_s = time.monotonic() - 20.0
    return Lent(run.clients, Plan(workload=workload, faults=("epochs",)), WORKLOADS[workload])


def client(slot: int, name: str, transacted_s: float = 20.0, **more) -> Client:
    """With a process, as far as anybody asks."""
    process = SimpleNamespace(alive=more.pop("alive", True))
    return Client(slot, process=process, name=name, transacted_s=transacted_s, **more)


@pytest.mark.parametrize("workload", ["append", "subscribe", "tuned"])
def test_whose_id_is_worn_out_has_transacted_a_moment_ago(stand_in, workload: str) -> None:
    """Where ids are not kept, those of clients that have ended are nobody's."""
    away = [
        client(0, ""),  # it has begun, and has come to nothing
        client(1, "append-1.1.1", alive=False),
        client(2, "append-2.1.1", paused=True),
        client(3, "append-3.1.1", transacted_s=14.0),
    ]
    lent = lends(stand_in, workload, *away, client(4, "append-4.2.7", transacted_s=17.0))
    found = {lent.in_use(random.Random(seed)) for seed in range(20)}
    assert found == {"append-4.2.7"}
    lent.clients.all.pop()
    with pytest.raises(LeftOut, match="no client of this load has transacted in the last 5 s"):
        lent.in_use(random.Random(1))


def test_an_id_that_is_kept_is_worn_out_without_the_number_of_a_life(stand_in) -> None:
    assert lends(stand_in, "churn", client(1, "churn-1.4")).in_use(random.Random(1)) == "churn-1"


def test_where_a_client_keeps_the_id_of_an_elder_that_one_is_worn_out(stand_in) -> None:
    """Whoever follows in its place has it, too."""
    lent = lends(stand_in, "queue", client(0, ""), client(1, "queue-1.1.1"))
    assert {lent.in_use(random.Random(seed)) for seed in range(9)} == {QUEUE_ELDER}


def test_whose_epochs_are_used_up_is_a_client_that_keeps_its_id_and_only_where_that_is_asked_for() -> (
    None
):
    queue, bank = WORKLOADS["queue"], WORKLOADS["bank"]
    asked = Plan(faults=("epochs",))
    assert has_elder_of(asked, queue) and has_elder_of(asked, bank)
    assert not has_elder_of(Plan(faults=("kill",)), queue)
    assert not has_elder_of(Plan(faults=("epochs",), transactions=False), queue)
    assert queue.words(asked, 0, [])[-2:] == ["--transactional-id", QUEUE_ELDER]
    assert "--transactional-id" not in queue.words(asked, 1, [])
    words = bank.words(asked, 0, [])
    assert words[words.index("--transactional-id") + 1] == bank.elder


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ((5, OLD), "e came to producer 5 epoch 32764 in"),
        ((5, 9_000), "e came to producer 5 epoch 9000, which is short of 32764 in"),
    ],
)
def test_what_an_id_came_to_before_the_load_is_said_though_its_time_was_over(
    monkeypatch, last, said
) -> None:
    def take_over(doors, name, times, stopping) -> Taken:
        assert (name, times, stopping()) == ("e", OLD + 1, False)
        set_clock(monkeypatch, lent, now_s=lambda: float("inf"))
        assert stopping(), "it is bounded"
        monkeypatch.undo()
        return Taken(last[1], (5, 0), last)

    monkeypatch.setattr(lent, "take_over", take_over)
    assert said in age(argparse.Namespace(doors={}), "e", 60.0, lambda: False)
