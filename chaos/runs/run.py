"""One run: brokers, clients, faults, the end of all of them, final polls, and what can be said.

INVARIANT  whatever ends a run, no process of it is left, its folder holds what was measured, and its verdict is `unknown`
           unless everything that a verdict needs was done, and every process ended as it was meant to.
PREVENTS   a run that was cut short, whose nodes never came back, or whose nodes or clients died and were replaced, passing
           for one in which nothing was lost.
PROVED BY  tests/chaos/test_queue_run.py::test_a_run_that_is_asked_to_end_keeps_what_it_measured_and_leaves_nothing_behind,
           tests/chaos/test_queue_exits.py::test_a_node_that_ended_by_itself_is_no_secret
"""

import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from ..checkers.availability import WANTED_SHARE, Availability
from ..checkers.away import AVAILABLE_S, Excused
from ..checkers.busy import Machine
from ..checkers.stuck_polls import GROUP_S, StuckPolls
from ..checkers.txn_history import Txn
from ..checkers.worked import AT_THE_END, Worked, lacking
from ..faults.exits import Watched
from ..faults.kinds import chosen
from ..faults.schedule import TROUBLE, Schedule
from ..faults.system import CannotDo, System
from ..faults.systems import system_of
from ..faults.targets import Asking
from .clients import Clients
from .draining import Draining
from .final_polls import final_polls
from .folder import FAULTS, UNKNOWN, RunFolder
from .interrupts import Beside, Interrupts
from .judging import judge, loads
from .lent import Lent, age, has_elder_of
from .plan import Plan, machine, versions
from .watch import Watch
from .workloads import TIMEOUT_MS, WORKLOADS

SENTENCE_MAX: Final = 300
TICK_S: Final = 0.1
# A transaction that its client has left open must be over soon after: final polls wait for all of them.
SETTINGS: Final = ("transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",)
SERVED_S: Final = 90.0
# Of load after all faults: at least, and when not all are served and shown, as long as it takes to call that a fault of the
# brokers, which is longer on a busy machine; and so much in all.
CALM_S: Final = 3.0
CALM_BESIDE_S: Final = 5.0
CALM_MAX_S: Final = 240.0
ENDED_MAX: Final = 5  # clients or nodes that ended by themselves, and are quoted

Say = Callable[[str], None]


class Run:
    """`go` does all of it, and returns the summary that run.json holds then.

    `CannotDo` or `DidNotStart` before anything has begun, for a target or faults that can't be had.
    """

    def __init__(self, plan: Plan, folder: RunFolder, say: Say) -> None:
        self.plan = plan
        self.workload = WORKLOADS[plan.workload]
        self.folder = folder
        self.say = say
        self.interrupts = Interrupts()
        self.unknown: list[str] = []  # why no more can be said
        self.broken: list[str] = []  # what must not be, and is not in the history
        self._load_of: tuple[Schedule, Clients] | None = None  # once there are such
        self.aged = ""  # what came of the id whose epochs are nearly used up
        self.summary: dict[str, Any] = {}
        self._polls = StuckPolls(Excused((), plan.nodes, None))  # for what they lack in the end
        self._worked = Worked()
        if why := self.workload.why_not(plan):
            raise CannotDo(why)
        settings = [*SETTINGS, *self.workload.settings, *plan.settings]
        system = system_of(
            plan.target,
            self.nodes_folder,
            nodes=plan.nodes,
            settings=settings,
            older=plan.older,
            faults=plan.faults,
        )
        self.watched = Watched(system)
        self.system = cast(System, self.watched)
        chosen(self.system, plan.faults)

    @property
    def nodes_folder(self) -> Path:
        return self.folder.path / "nodes"

    def go(self) -> dict[str, Any]:
        plan = self.plan
        self.summary = {
            "name": plan.name,
            "workload": plan.workload,
            "target": plan.target,
            "nodes": plan.nodes,
            "seed": plan.seed,
            "faults": list(plan.faults),
            "command": plan.command,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "versions": versions(plan, self.system.foreign),
            "machine": machine(),
            "options": asdict(plan),
            "verdict": UNKNOWN,
            "why": "the run has not come to its end",
            "unknown": ["the harness was ended before the run was"],
            "counts": {},
            "recovery_ms": {},
        }
        self.folder.create(self.summary)
        began = time.monotonic()
        with self.interrupts:
            try:
                self._measure()
            except TROUBLE as trouble:
                self.unknown.append(_short(f"{type(trouble).__name__}: {trouble}"))
            except KeyboardInterrupt:
                self.unknown.append("interrupted twice: nothing was waited for")
            except CannotDo as refused:
                if self._load_of is None:
                    raise
                self._note_unforeseen(refused)
            except Exception as unforeseen:  # noqa: BLE001 - a traceback would end with the code of `invalid`
                self._note_unforeseen(unforeseen)
            if self.interrupts:
                self.unknown.append(f"{self.interrupts.asked} came before the run was through")
            if self._load_of is not None:
                self._account(*self._load_of)
            self._account_exits()
            self.summary["seconds"] = round(time.monotonic() - began, 3)
            self.summary["unknown"] = self.unknown
            self.summary["broken"] = self.broken
            self.summary |= self.folder.written
            self.folder.write(self.summary)
        self.summary = judge(self.folder, self.say)
        if self.summary["verdict"] == "valid":
            shutil.rmtree(self.nodes_folder, ignore_errors=True)
        return self.summary

    def _note_unforeseen(self, error: Exception) -> None:
        self.summary["trace"] = traceback.format_exc()
        self.unknown.append(_short(f"{type(error).__name__}: {error}"))

    # -- the run ---------------------------------------------------------------------------------

    def _measure(self) -> None:
        with self.system as system:
            self.say(f"{self.plan.nodes} nodes ({system.name}) serve at {system.bootstrap}")
            clients = self._clients(system)
            try:
                schedule = self._schedule(system, clients)
                self._load_of = schedule, clients
                self._load(system, clients, schedule)
                if not self.interrupts:
                    self._final(system, clients)
            finally:
                clients.kill()
            system.stop()

    def _clients(self, system: System) -> Clients:
        plan = self.plan
        same = ["--bootstrap", system.bootstrap, "--seed", str(plan.seed)]
        same += ["--timeout-ms", str(TIMEOUT_MS)]
        if self.workload.asks_admin:
            same += ["--admin", ",".join(f"{host}:{port}" for host, port in system.admins.values())]
        self.workload.prepare(plan, system.bootstrap)
        if plan.age_s and has_elder_of(plan, self.workload):
            interrupted = lambda: bool(self.interrupts)  # noqa: E731 - asked while it goes on
            self.aged = age(system, self.workload.elder, plan.age_s, interrupted)
            self.say(self.aged)
        return Clients(
            self.folder,
            count=plan.clients,
            module=self.workload.module,
            words=lambda slot, keys: [*same, *self.workload.words(plan, slot, keys)],
            seed=plan.seed,
            life_s=plan.crash_s,
        )

    def _schedule(self, system: System, clients: Clients) -> Schedule:
        plan = self.plan
        ids, groups = self.workload.transactional_ids, self.workload.groups
        asked = Asking(system, transactional_ids=ids, groups=groups)
        return Schedule(
            system,
            plan.faults,
            plan.seed,
            plan.seconds,
            asked,
            lambda line: self.folder.append(FAULTS, [line]),
            clients=Lent(clients, plan, self.workload).hooks(),
            at_once=plan.at_once,
            began=clients.began_s,
        )

    def _load(self, system: System, clients: Clients, schedule: Schedule) -> None:
        """Clients and faults, for as long as the plan says."""
        plan, asked = self.plan, schedule.stage.asked
        counts = lambda: {  # noqa: E731 - two numbers, read from another thread
            "acked": clients.known.acknowledged,
            "bytes": clients.known.acknowledged_bytes,
        }
        watch = Watch(
            self.folder, lambda: _of_the_load(asked.seen()), counts, lambda: clients.now_s
        )
        clients.watching += [self._see_polls, self._worked.see]
        if self.workload.to_drain(plan):
            self.summary["left"] = None  # nobody has looked yet
        clients.start()
        watch.start()
        try:
            self._until_served(clients)
            schedule.run()
            told_s, end_s = 0.0, clients.now_s + plan.seconds
            while clients.now_s < end_s and not self.interrupts:
                clients.tick()
                if clients.now_s - told_s > 10.0:
                    told_s = clients.now_s
                    self.say(
                        f"{told_s:4.0f} s: {clients.known.acknowledged:,} records acknowledged, "
                        f"{sum(schedule.counts.values())} faults"
                    )
                time.sleep(TICK_S)
            # Nodes may take long to come back, and the load goes on meanwhile.
            stopped = Beside(schedule.stop, name="stops-faults")
            while not stopped.is_over:
                clients.tick()
                time.sleep(TICK_S)
            stopped.end()
            if schedule.healed:
                self._calm(clients)
            self.summary["stopped_s"] = round(clients.now_s, 3)
            if self.workload.cast is not None and schedule.healed and not self.interrupts:
                self._work_off(system, clients)
            clients.stop()
        finally:
            watch.stop()
            if not schedule.stage.stopping.is_set():
                schedule.stage.stopping.set()

    def _until_served(self, clients: Clients) -> None:
        """Faults begin when the load is on its feet."""
        while not clients.known.acknowledged and not self.interrupts:
            clients.tick()
            time.sleep(TICK_S)
            if clients.now_s > SERVED_S:
                raise TimeoutError(f"nothing was acknowledged in {SERVED_S:g} s, before any fault")

    def _calm(self, clients: Clients) -> None:
        """The load goes on when all faults are over, until every key that is in use was served, and shown to whom it is
        assigned, and all that the workload is there for was done; or should have been."""
        healed_s = self.summary["healed_s"] = round(clients.now_s, 3)
        after = Availability((), self.plan.nodes, healed_s)
        clients.watching.append(after.see)
        ends_s, looked_s = healed_s + CALM_MAX_S, healed_s
        while not self.interrupts and clients.now_s < ends_s:
            clients.tick()
            all_are_shown = self._polls.all_shown(healed_s)
            # What has been under way for long is a try as well, and nobody knows of what until it ends.
            wanted_s = WANTED_SHARE * (clients.now_s - healed_s)
            none_is_old = clients.oldest_s > clients.now_s - wanted_s
            all_are_well = after.all_served and none_is_old and all_are_shown and self._has_worked
            if all_are_well and clients.now_s > healed_s + CALM_S:
                break
            if clients.now_s > looked_s + CALM_S:
                looked_s, ends_s = clients.now_s, self._calm_ends_s(healed_s)
            time.sleep(TICK_S)

    def _calm_ends_s(self, healed_s: float) -> float:
        """When whoever waits since then has waited for so long that it is a fault of the brokers."""
        within_s = AVAILABLE_S if self._polls.all_shown(healed_s) else GROUP_S
        machine = Machine(loads(self.folder))
        due_s = Excused((), self.plan.nodes, None, machine).due(healed_s, within_s)
        return min(due_s + CALM_BESIDE_S, healed_s + CALM_MAX_S)

    @property
    def _has_worked(self) -> bool:
        name, via = self.plan.workload, self.plan.via
        counts = self._worked.counts(name) | dict.fromkeys(AT_THE_END, 1)
        return not lacking(name, via, counts)

    def _work_off(self, system: System, clients: Clients) -> None:
        """Who brings more ends first; the others work off what is there, and nobody is broken any more."""
        are_gone = clients.retire(lambda place: self.workload.stops_first(self.plan, place))
        while not are_gone():
            clients.tick()
            time.sleep(TICK_S)
        wanted = self.workload.to_drain(self.plan)
        if not wanted:
            return
        self.say("all that was left is worked off")
        with Draining(self.folder.path, wanted, system) as draining:
            while draining.goes_on and not self.interrupts:
                clients.tick()
                time.sleep(TICK_S)
            self.summary["left"] = None if self.interrupts else draining.left

    def _see_polls(self, op: Txn) -> None:
        for _ in self._polls.see(op):
            pass  # what must not be is looked for in the whole history

    def _account(self, schedule: Schedule, clients: Clients) -> None:
        self.summary["counts"] = {
            "faults": sum(schedule.counts.values()),
            "faults left out": len(schedule.left_out),
            "crashed clients": clients.crashes,
            "hung clients": clients.hung,
        }
        self.summary["left_out"] = schedule.left_out
        self.summary["trouble"] = schedule.trouble
        self.summary["seen"] = [
            *([self.aged] if self.aged else []),
            *schedule.stage.seen,
            *clients.ended[:ENDED_MAX],
        ]
        self.broken += map(_short, schedule.stage.broken)
        for each in schedule.trouble:  # its first line says what; nodes' logs are behind it
            self.unknown.append(_short(each))
        if idle := clients.idle():
            self.unknown.append(f"clients {idle} never did anything")
        if clients.ended:
            first, *rest = clients.ended[0].strip().splitlines()
            why = (
                f"{len(clients.ended)} clients ended by themselves; {' '.join([first, *rest[-1:]])}"
            )
            self.unknown.append(_short(why))

    def _account_exits(self) -> None:
        """Nodes that ended by themselves, or of which a clean stop was none."""
        excused = [str(each) for each in self.watched.exits if each.excused]
        self.summary.setdefault("seen", []).extend(map(_short, excused[:ENDED_MAX]))
        exits = [each for each in self.watched.exits if not each.excused]
        for each in exits[:ENDED_MAX]:
            (self.broken if each.broken else self.unknown).append(_short(str(each)))
        if more := exits[ENDED_MAX:]:
            self.unknown.append(f"{len(more)} more nodes ended by themselves")
            self.broken += [_short(str(each)) for each in more if each.broken]

    def _final(self, system: System, clients: Clients) -> None:
        away = [node for node in system.nodes if not system.is_up(node)]
        if away:
            said = system.said(away[0])[-500:]
            self.unknown.append(f"nodes {away} never came back; node {away[0]} said last: {said}")
        self.say("final polls")
        self.summary["final_polls"] = "reached all that was known of"
        for module, words in self.workload.finals(self.plan):
            final = final_polls(
                self.folder.path,
                clients.known,
                system.bootstrap,
                began_s=clients.began_s,
                seconds=self.plan.final_s,
                all_up=not away,
                stopping=lambda: bool(self.interrupts),
                module=module,
                words=words,
            )
            clients.write(final.operations)
            if final.whole:
                continue
            self.summary["final_polls"] = final.why
            if final.missed:
                self.summary["missed"] = final.why
            else:
                self.unknown.append(final.why)


def _short(sentence: str) -> str:
    first = sentence.replace("\\n", "\n").partition("\n")[0]
    return first if len(first) <= SENTENCE_MAX else f"{first[:SENTENCE_MAX]}…"


def _of_the_load(seen: dict[str, Any]) -> dict[str, Any]:
    """Without the brokers' own topics, which have many partitions."""
    return {
        name: {key: each for key, each in value.items() if not key.startswith("__")}
        if isinstance(value, dict)
        else value
        for name, value in seen.items()
    }
