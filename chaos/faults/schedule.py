"""Faults by seed, beside a load: each begins, lasts, is healed; at the end all is healed, whatever happened.

    asked = Asking(system, topics=["t0"], transactional_ids=["pay-1"])
    with Schedule(system, ["kill", "cut"], seed=7, seconds=60, asked=asked, tell=lines.append) as schedule:
        …                                   # the load
    schedule.trouble                        # sentences: who did not come back

INVARIANT  when `stop` returns no fault is left: nobody is dead, paused, cut off, slow; or `trouble` says who. A fault is told
           to be over when its nodes serve again, and not before. Who ended by itself is in `exits`.
PREVENTS   final polls that fail because the schedule, not the broker, kept a node away; a cluster that is asked to serve
           with nodes that never came back, or a node that died and was quietly revived.
PROVED BY  tests/chaos/test_faults_schedule.py::test_all_is_healed_though_a_fault_fails_in_the_middle,
           tests/chaos/test_faults_schedule.py::test_a_fault_whose_node_does_not_come_back_is_not_over_before_it_does
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, cast

from ..checkers.away import STRUCK
from ..harness.asking import NobodyAnswers
from ..harness.processes import DidNotStart
from .exits import MAY_END, Exit, watched
from .fault import Clients, Fault, LeftOut, Stage
from .kinds import chosen
from .plan import Strike, plan
from .system import System
from .targets import Asking

# What a system may answer when it is not as it should be: told, and the run goes on to its end.
TROUBLE: Final = (OSError, TimeoutError, DidNotStart, NobodyAnswers)
LANES_MAX: Final = 4


class Schedule:
    """`tell` is called from threads of this, one at a time, with a line of faults.jsonl.

    `began` is when the run began, on time.monotonic: what is told is in seconds since then. `at_once` is how many
    faults may strike at a time.
    """

    def __init__(
        self,
        system: System,
        kinds: Sequence[str],
        seed: int,
        seconds: float,
        asked: Asking,
        tell: Callable[[dict[str, Any]], None],
        *,
        clients: Clients | None = None,
        at_once: int = 1,
        began: float | None = None,
    ) -> None:
        assert 1 <= at_once <= LANES_MAX, f"{at_once} faults at once; allowed are 1 to {LANES_MAX}"
        self._watched = watched(system)
        self.system = cast(System, self._watched)
        self.began = time.monotonic() if began is None else began
        self.stage = Stage(
            self.system,
            asked,
            clients or Clients(),
            now_s=self._now,
            was_to_end=self._watched.was_to_end,
        )
        self.counts: Counter[str] = Counter()  # faults that were done, by name
        self.left_out: list[str] = []
        self.trouble = self.stage.trouble
        self.healed = False  # all nodes served when all was over
        self._kinds = chosen(system, kinds)
        self._tell = tell
        self._not_over: list[dict[str, Any]] = []  # faults whose nodes did not come back
        known = {name: kind.kind() for name, kind in self._kinds.items()}
        self.lanes = [plan(known, seed, seconds, lane) for lane in range(at_once)]
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"faults-{number}", daemon=True)
            for number, lane in enumerate(self.lanes)
        ]
        self._started_at = 0.0
        self._failures: list[BaseException] = []
        self._told = threading.Lock()

    # -- from outside ----------------------------------------------------------------------------

    def run(self) -> None:
        """Begin, and return at once."""
        self._started_at = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether all faults of the plan have been."""
        return self._started_at > 0 and not any(thread.is_alive() for thread in self._threads)

    @property
    def exits(self) -> list[Exit]:
        return self._watched.exits

    def wait(self) -> None:
        """Until all faults of the plan have been."""
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """End and heal what is under way, then see that all nodes serve. Raises what nobody foresaw."""
        self.stage.stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._heal_all()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Self:
        self.run()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- a lane ----------------------------------------------------------------------------------

    def _run(self, lane: Sequence[Strike]) -> None:
        try:
            for strike in lane:
                self.stage.sleep(self._started_at + strike.at_s - time.monotonic())
                if self.stage.stopping.is_set():
                    return
                if time.monotonic() - self._started_at < strike.until_s:
                    self._strike(strike)
                else:  # so that all is over when it has to be
                    self.left_out.append(
                        f"{strike.kind} of {strike.target}: the one before it took longer"
                    )
        except BaseException as unforeseen:  # noqa: BLE001 - `stop` raises it where somebody sees it
            self._failures.append(unforeseen)
            self.stage.stopping.set()

    def _strike(self, strike: Strike) -> None:
        fault = self._kinds[strike.kind](self.stage, strike)
        line = {
            "at_s": self._now(),
            "until_s": None,
            "id": strike.dice,
            "fault": strike.kind,
            "target": strike.target,
        }
        try:
            what = self._begin(fault, line)
            if what is not None:
                self.stage.sleep(self._ends_at(fault, strike) - time.monotonic())
        finally:
            is_over = self._heal(fault)
        if what is not None:
            self._over({**line, **_told(fault, what)}, at_once=is_over)

    def _ends_at(self, fault: Fault, strike: Strike) -> float:
        """It lasts as long as it was to, however late it found whom to strike."""
        planned = self._started_at + strike.until_s
        if fault.struck_s is None:
            return planned
        return max(planned, self.began + fault.struck_s + fault.lasts_s)

    def _begin(self, fault: Fault, line: dict[str, Any]) -> str | None:
        """What was done; None when it was left out."""
        try:
            what = fault.begin()
        except (LeftOut, NobodyAnswers) as why:
            self.left_out.append(f"{fault.name} of {fault.target}: {why}")
            return None
        except TROUBLE as trouble:
            what = f"in the middle of it: {trouble!r}"
            self.trouble.append(f"{fault.name} of {fault.target}: {trouble!r}")
            fault.more[STRUCK] = False  # nobody knows what it did
        else:
            self.counts[fault.name] += 1
        if fault.struck_s is not None:
            line["at_s"] = fault.struck_s
        if fault.name in MAY_END:
            self._watched.may_end(fault.nodes, fault.name)
        self._say({**line, **_told(fault, what)})
        return what

    def _heal(self, fault: Fault) -> bool:
        """Whether it is over."""
        try:
            seen = fault.heal()
            if seen:
                self.seen(fault, seen)
        except TROUBLE as trouble:
            self.trouble.append(f"{fault.name} of {fault.target}, healing: {trouble!r}")
            return False
        finally:
            self._watched.over(fault.nodes)
            fault.give_back()
        return True

    def _over(self, line: dict[str, Any], *, at_once: bool) -> None:
        if at_once:
            self._say({**line, "until_s": self._now()})
        else:
            self._not_over.append(line)

    def _heal_all(self) -> None:
        """Whatever the faults left, and whoever ended by itself."""
        self.system.heal()
        away = [node for node in self.system.nodes if not self.system.runs(node)]
        for node in away:
            self.system.start(node)
        try:
            self.system.wait_ready(self.system.nodes, self.system.back_s)
        except TROUBLE as trouble:
            self.trouble.append(f"not all came back in the end: {trouble!r}")
            return
        self.healed = True
        for line in self._not_over:
            self._over(line, at_once=True)

    def seen(self, fault: Fault, sentence: str) -> None:
        """Kept beside the plan for who reads the run."""
        self.stage.seen.append(f"{fault.name} of {fault.target}: {sentence}")

    def _say(self, line: dict[str, Any]) -> None:
        with self._told:
            self._tell(line)

    def _now(self) -> float:
        return round(time.monotonic() - self.began, 3)


def _told(fault: Fault, what: str) -> dict[str, Any]:
    return {"nodes": fault.nodes, "what": what, "form": fault.form, **fault.more}
