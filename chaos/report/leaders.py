"""Who led each partition and who was in sync, as stretches of time between two changes; made of samples about a second apart."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .run_folder import number_of, text_of

NOBODY: Final = "nobody"
PARTITIONS_MAX: Final = 512
STRETCHES_MAX: Final = 20_000
SILENCE_S: Final = 15.0  # without a sample for so long, nothing is known


@dataclass(slots=True)
class Stretch:
    """One leader and one ISR; of what is not known there is none."""

    from_s: float
    to_s: float
    leader: str
    in_sync: tuple[str, ...] | None


@dataclass(slots=True)
class Leaders:
    of: dict[str, list[Stretch]] = field(default_factory=dict)  # partition -> in the order of time
    controllers: list[Stretch] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)  # the most that were ever in sync
    left_out: int = 0  # partitions beyond what is kept
    is_full: bool = False  # later changes are not kept
    elections: Counter[str] = field(default_factory=Counter)  # another leader than before
    _unanswered: set[int] = field(default_factory=set)  # whose last question had no answer
    _stretches: int = 0
    _beyond: set[str] = field(default_factory=set)

    def add(self, at_s: float, sample: Mapping[str, Any]) -> None:
        leaders, in_sync = sample.get("leaders"), sample.get("isr")
        isr_of = in_sync if isinstance(in_sync, Mapping) else {}
        if "controller" in sample:
            self._extend(self.controllers, at_s, _node(sample["controller"]), None)
        elif self.controllers:
            self._unanswered.add(id(self.controllers))
        if not isinstance(leaders, Mapping):  # asked, and nobody answered
            self._unanswered.update(map(id, self.of.values()))
        for name, leader in leaders.items() if isinstance(leaders, Mapping) else ():
            name = text_of(name)
            if name not in self.of:
                if len(self.of) >= PARTITIONS_MAX:
                    if len(self._beyond) < 100_000:
                        self._beyond.add(name)
                        self.left_out = len(self._beyond)
                    continue
                self.of[name] = []
            isr = isr_of.get(name)
            members = tuple(sorted(map(text_of, isr[:99]))) if isinstance(isr, list) else None
            if members is not None:
                self.copies[name] = max(self.copies.get(name, 0), len(members))
            last = self._last_leader(name)
            now = _node(leader)
            if last is not None and now not in (NOBODY, last):
                self.elections[name] += 1
            self._extend(self.of[name], at_s, now, members)

    def _last_leader(self, name: str) -> str | None:
        return next(
            (each.leader for each in reversed(self.of[name]) if each.leader != NOBODY), None
        )

    def _extend(
        self, stretches: list[Stretch], at_s: float, leader: str, isr: tuple[str, ...] | None
    ) -> None:
        """The stretch before reaches to this sample, unless nobody looked for long."""
        last = stretches[-1] if stretches else None
        silent = id(stretches) in self._unanswered
        self._unanswered.discard(id(stretches))
        if last is not None and not silent and at_s - last.to_s <= SILENCE_S:
            last.to_s = max(last.to_s, at_s)
            if (last.leader, last.in_sync) == (leader, isr):
                return
        if self._stretches >= STRETCHES_MAX:
            self.is_full = True
            return
        self._stretches += 1
        stretches.append(Stretch(at_s, at_s, leader, isr))

    def end(self, end_s: float) -> None:
        """The last sample stands for the second behind it."""
        for stretches in (self.controllers, *self.of.values()):
            if stretches:
                last = stretches[-1]
                last.to_s = max(last.to_s, min(end_s, last.to_s + 1.0))

    @property
    def nodes(self) -> list[str]:
        found = {each.leader for each in self.controllers}
        found.update(each.leader for stretches in self.of.values() for each in stretches)
        found.update(
            node
            for stretches in self.of.values()
            for each in stretches
            for node in each.in_sync or ()
        )
        found.discard(NOBODY)
        return sorted(found, key=_by_number)

    def most_changed(self, most: int) -> list[str]:
        """Those whose leader or ISR changed most often, then in the order of their names."""
        chosen = sorted(self.of, key=lambda name: (-len(self.of[name]), _by_number(name)))[:most]
        return sorted(chosen, key=_by_number)


def _node(value: Any) -> str:
    number = number_of(value)
    if number is None:
        return text_of(value) or NOBODY
    return NOBODY if number < 0 else f"{number:g}"


def _by_number(name: str) -> tuple[str, float, str]:
    """orders-2 before orders-10."""
    start, _, number = name.rpartition("-")
    return (
        (start, float(number), name)
        if number.isdecimal() and len(number) < 10
        else (name, 0.0, name)
    )
