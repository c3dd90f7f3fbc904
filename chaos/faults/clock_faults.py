"""Clocks that are wrong: wall clocks that jump or flutter, clocks of either kind that run too fast or too slow."""

import threading

from .fault import LONG_S, Fault, Stage, names
from .plan import Strike

STROBE_S = (0.005, 0.5)  # between two jumps of a clock that flutters


class Clock(Fault):
    """The wall clock is set right at the end, as a time service would; the steady one goes on from where it is."""

    name = "clock"
    needs = "clock"
    hold_s = (2.0, 12.0)
    long_s = LONG_S

    def __init__(self, stage: Stage, strike: Strike) -> None:
        super().__init__(stage, strike)
        self._over = threading.Event()
        self._strobe: threading.Thread | None = None

    def begin(self) -> str:
        nodes = self.take()
        form = self.rng.choice((self._jump, self._flutter, self._drift))
        return f"{form(nodes)} ({self.target})"

    def _jump(self, nodes: list[int]) -> str:
        told = []
        for node in nodes:
            seconds = self.rng.choice((-1, 1)) * 10 ** self.rng.uniform(-1.0, 5.0)
            self.system.world(node).jump(seconds)
            told.append(f"{seconds:+.1f} s on node {node}")
        return f"wall clocks jumped: {', '.join(told)}"

    def _flutter(self, nodes: list[int]) -> str:
        seconds = 10 ** self.rng.uniform(-1.0, 3.0)
        pause_s = self.rng.uniform(*STROBE_S)

        def strobe() -> None:
            off = False
            while not self._over.wait(pause_s):
                off = not off
                for node in nodes:
                    self.system.world(node).jump(seconds if off else 0)

        self._strobe = threading.Thread(target=strobe, name="strobe", daemon=True)
        self._strobe.start()
        return f"wall clocks of {names(nodes)} go {seconds:.1f} s to and fro every {pause_s * 1000:.0f} ms"

    def _drift(self, nodes: list[int]) -> str:
        told = []
        for node in nodes:
            wall, steady = 10 ** self.rng.uniform(-1, 1), self.rng.uniform(0.8, 1.25)
            self.system.world(node).drift(wall=wall, steady=steady)
            told.append(f"node {node} wall {wall:.2f}, steady {steady:.2f}")
        return f"clocks run so many times as fast: {'; '.join(told)}"

    def heal(self) -> str:
        self._over.set()
        if self._strobe is not None:
            self._strobe.join()
        for node in self.nodes:
            self.system.world(node).right_clocks()
        return ""


KINDS = (Clock,)
