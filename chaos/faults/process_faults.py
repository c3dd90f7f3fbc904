"""Processes that end or stand still: SIGKILL, SIGSTOP, rolling restarts, and the hunt for whoever has an office."""

import signal

from fencepost.chaos.harness.asking import NobodyAnswers

from .fault import LONG_S, Fault, LeftOut, names

HUNT_BREATH_S = (0.2, 2.0)  # from one kill of a hunt to the next


class Kill(Fault):
    """SIGKILL; they come back at the end, sometimes at once."""

    name = "kill"
    needs = "kill"
    hold_s = (0.2, 8.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        for node in nodes:
            self.system.kill(node)
        return f"killed {names(nodes)} ({self.target})"

    def heal(self) -> str:
        return self.start_again(self.nodes)


class Pause(Fault):
    """SIGSTOP: connections stay, nothing is said; who wakes up believes that no time went by."""

    name = "pause"
    needs = "pause"
    hold_s = (0.1, 12.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        for node in nodes:
            self.system.pause(node)
        return f"paused {names(nodes)} ({self.target})"

    def heal(self) -> str:
        for node in self.nodes:
            self.system.resume(node)
        return ""


class Restart(Fault):
    """Each node in turn is stopped cleanly and started again, the next when it serves."""

    name = "restart"
    needs = "kill"
    targets = ("all",)
    hold_s = (1.0, 2.0)

    def begin(self) -> str:
        nodes = list(self.system.nodes)
        self.rng.shuffle(nodes)
        self.nodes = self.stage.take("all", self.rng)
        done = []
        for node in nodes:
            if self.stage.stopping.is_set():
                break
            self.system.kill(node, signal.SIGTERM)
            self.system.start(node)
            self.system.wait_ready([node], self.system.back_s)
            done.append(node)
        return f"stopped {names(done)} cleanly and started again, one after the other"

    def heal(self) -> str:
        return self.start_again(self.nodes)


class Hunt(Fault):
    """Whoever has the office is killed, again and again, and started again at once. Whom it has killed it keeps to its end: a fault of
    another lane would kill one, and find it started again when this one is healed."""

    name = "hunt"
    needs = "kill"
    targets = ("coordinator", "controller", "leaders")
    hold_s = (0.5, 1.0)

    def begin(self) -> str:
        killed: list[int] = []
        for _ in range(self.rng.randint(2, 5)):
            if self.stage.stopping.is_set():
                break
            node = self._next()
            if node is None:
                break
            if not killed:
                self.strikes()
            self.system.kill(node)
            killed.append(node)
            self.stage.sleep(self.rng.uniform(*HUNT_BREATH_S))
            self.system.start(node)
        if not killed:
            raise LeftOut(f"no {self.target} to be found")
        return f"killed who was {self.target}: {names(killed)}, each started again at once"

    def _next(self) -> int | None:
        with self.stage.lock:  # nobody else takes one of ours while it is free for us
            self.stage.give_back(self.nodes)
            try:
                (node,) = self.stage.take(self.target, self.rng)
            except (LeftOut, NobodyAnswers):
                return None
            finally:
                self.stage.taken.update(self.nodes)
        if node not in self.nodes:
            self.nodes.append(node)
        return node

    def heal(self) -> str:
        return self.start_again(self.nodes)


KINDS = (Kill, Pause, Restart, Hunt)
