"""Networks that are cut or slow: both ways, one way, in part, as a ring in which each sees a majority and no two the same."""

from collections.abc import Callable, Sequence
from itertools import combinations

from ..checkers.promised import PARTIAL, RING, SLIGHT, STALE
from .fault import LONG_S, Fault, LeftOut, names
from .system import CLIENTS, Way
from .targets import TARGETS

Form = Callable[[Sequence[int], Sequence[int]], tuple[list[Way], str]]
SLIGHT_S = 0.05  # and a transaction of these loads ends long before it times out


def isolated(nodes: Sequence[int], others: Sequence[int]) -> list[Way]:
    """Each of `nodes` from each of `others`, both ways."""
    return sorted({way for a in nodes for b in others for way in ((a, b), (b, a)) if a != b})


def deaf(nodes: Sequence[int], others: Sequence[int]) -> list[Way]:
    """What others say does not reach `nodes`; what these say is heard."""
    return sorted({(b, a) for a in nodes for b in others if a != b})


def mute(nodes: Sequence[int], others: Sequence[int]) -> list[Way]:
    return sorted({(a, b) for a in nodes for b in others if a != b})


def ring(order: Sequence[int]) -> list[Way]:
    """Each sees its nearest neighbours, itself among them a majority; of three, each hears one of the two others only."""
    count = len(order)
    if count <= 3:
        return sorted((order[place], order[(place + 1) % count]) for place in range(count))
    reach = (count // 2 + 1) // 2  # neighbours on either side
    far = []
    for one, other in combinations(range(count), 2):
        apart = min(other - one, count - (other - one))
        if apart > reach:
            far += isolated([order[one]], [order[other]])
    return sorted(far)


class Cut(Fault):
    """What is on its way when the cut begins arrives after it, as TCP would send it again."""

    name = "cut"
    needs = "cut"
    hold_s = (2.0, 15.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        others = [node for node in self.system.nodes if node not in nodes]
        form = self.rng.choice(self._forms(others))
        self.form = STALE if form in (_off, _deaf, _mute) else ""
        ways, what = form(nodes, others)
        if not ways:
            raise LeftOut(f"{names(nodes)} has nobody to be cut off from")
        with self.stage.lock:
            self.stage.cuts[self.key] = ways
            self._tell()
        return f"{what} ({self.target})"

    def heal(self) -> str:
        with self.stage.lock:
            self.stage.cuts.pop(self.key, None)
            self._tell()
        return ""

    def _tell(self) -> None:
        """Those of two lanes at a time are put together, and each heals its own alone."""
        self.system.cut(sorted({way for ways in self.stage.cuts.values() for way in ways}))

    def _forms(self, others: Sequence[int]) -> list[Form]:
        forms: list[Form] = [_off, _off_from_all]
        if "one-way" in self.system.can:
            forms += [_deaf, _mute]
            if len(self.system.nodes) >= 3:
                forms.append(self._ring)
        if len(others) >= 2:
            forms.append(self._partial)
        return forms

    def _ring(self, nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
        self.form = RING
        order = list(self.system.nodes)
        self.rng.shuffle(order)
        if len(order) == 3:
            what = f"of nodes {order} each hears one of the two others only"
        else:
            what = f"nodes in a ring of {order}: each sees a majority, and no two the same"
        return ring(order), what

    def _partial(self, nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
        self.form = PARTIAL
        one = self.rng.choice(others)
        return isolated(nodes, [one]), f"{names(nodes)} and node {one} don't reach each other"


def _off(nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
    if not others:
        return isolated(nodes, nodes), f"cut {names(nodes)} off from one another"
    return isolated(
        nodes, others
    ), f"cut {names(nodes)} off from {names(others)}; clients reach all"


def _off_from_all(nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
    ways = isolated(nodes, [*others, CLIENTS])
    return ways, f"cut {names(nodes)} off from the other nodes and from clients"


def _deaf(nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
    from_whom = list(others) or list(nodes)
    return deaf(
        nodes, from_whom
    ), f"{names(nodes)} hear nothing of {names(from_whom)}, and are heard"


def _mute(nodes: Sequence[int], others: Sequence[int]) -> tuple[list[Way], str]:
    to_whom = list(others) or list(nodes)
    return mute(nodes, to_whom), f"{names(nodes)} are not heard by {names(to_whom)}, and hear them"


class Slow(Fault):
    """Every piece that goes to or comes from a node takes longer, of other nodes and of clients."""

    name = "slow"
    needs = "slow"
    targets = TARGETS
    hold_s = (2.0, 15.0)
    long_s = LONG_S

    def begin(self) -> str:
        nodes = self.take()
        seconds = self.rng.choice((0.005, 0.05, 0.2, 0.8))
        self.form = SLIGHT if seconds <= SLIGHT_S else ""
        others = [*self.system.nodes, CLIENTS]
        with self.stage.lock:
            self.stage.slow[self.key] = dict.fromkeys(isolated(nodes, others), seconds)
            self._tell()
        return f"all to and from {names(nodes)} takes {seconds * 1000:g} ms longer ({self.target})"

    def heal(self) -> str:
        with self.stage.lock:
            self.stage.slow.pop(self.key, None)
            self._tell()
        return ""

    def _tell(self) -> None:
        self.system.slow({way: s for ways in self.stage.slow.values() for way, s in ways.items()})


KINDS = (Cut, Slow)
