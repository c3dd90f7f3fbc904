"""Are the planted bugs seen? Each in seeds 0, 1, 2, … of its campaign until a checker cries; the table of it all.

A bug that nobody sees within its seeds is the find: a checker, a workload or a fault is missing. Those of which that is known
(`is_open`) have a row that says so, are hunted only by their names, and fail when something sees them: then they are open no more.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ..planted.bugs import Bug, all_bugs
from ..runs.interrupts import EXIT_INTERRUPTED
from ..sim.deleting import SLEEPERS
from ..sim.plan import Plan
from .campaign import run_plan
from .options import HAVE_NODES
from .runner import spread

BEGIN: Final = "<!-- written by `fencepost sim planted --write chaos/README.md` -->"
END: Final = "<!-- until here -->"
HEADER: Final = (
    "| planted bug | what it breaks | campaign | seen as | in seed | of | by clients alone |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
NOBODY: Final = "–"  # of what its clients saw nothing was wrong, or it has none


@dataclass(frozen=True, slots=True)
class Sighting:
    """Which rule was broken first, and in which seed; `rule` is empty when nothing was."""

    bug: str
    rule: str
    seeds: int
    failure: str
    virtual_s: float
    watch: str = ""  # `CLIENTS`: nobody looked into the nodes

    @property
    def was_seen(self) -> bool:
        """By a checker that is there for it; another failure is a sign, and no proof. By clients alone anything will do that a
        run on real nodes would be called for."""
        return bool(self.rule) if self.watch else self.rule in all_bugs()[self.bug].seen_by


def plan_for(bug: Bug, seed: int, watch: str = "") -> Plan:
    return Plan(
        campaign=bug.campaign,
        seed=seed,
        seconds=bug.seconds,
        faults=bug.faults,
        nodes=0 if bug.campaign == "quorum" or SLEEPERS in bug.workloads else 3,
        workloads=bug.workloads,
        protocol=bug.protocol,
        config=bug.config,
        planted=bug.name,
        watch=watch,
    )


def hunt(name: str, watch: str = "") -> Sighting:
    bug = all_bugs()[name]
    virtual_s = 0.0
    for seed in range(bug.seeds):
        outcome = run_plan(plan_for(bug, seed, watch))
        virtual_s += outcome.virtual_s
        if outcome.failure:
            return Sighting(name, outcome.kind, seed + 1, outcome.failure, virtual_s, watch)
    return Sighting(name, "", bug.seeds, "", virtual_s, watch)


def seen(bugs: Sequence[Bug], jobs: int, watch: str = "") -> Iterator[Sighting]:
    """One process a bug, as many at one time as there are jobs."""
    for name, sighting in spread(partial(hunt, watch=watch), [each.name for each in bugs], jobs):
        if isinstance(sighting, Sighting):
            yield sighting
        else:
            yield Sighting(name, "", 0, f"a worker died: {sighting}", 0.0, watch)


def hunted(names: Sequence[str], watch: str = "") -> list[Bug]:
    """These; without names all but those that are open, and that have no clients to be seen by where those are to see."""
    known = all_bugs()
    usual = [each for each in known.values() if not each.is_open]
    return [known[name] for name in names] or [
        each for each in usual if not watch or each.campaign in HAVE_NODES
    ]


def show_and_write(
    sightings: Iterable[Sighting],
    readme: Path | None,
    wanted: int | None = None,
    over: Callable[[], object] = lambda: None,
) -> int:
    """The exit code: 1 when a bug was not seen, or an open one was; else 130 when somebody ended the hunt before all of those
    that were `wanted` had been hunted. What was seen by then is told and written. `over` is called when no more are hunted."""
    found: list[Sighting] = []
    is_cut = _shown(sightings, found)
    over()
    unseen = [each.bug for each in found if not each.was_seen]
    amiss = [
        each.bug
        for each in found
        if not each.watch and each.was_seen is all_bugs()[each.bug].is_open
    ]
    if readme is not None and found:
        _write(readme, found)
    print(f"{len(found) - len(unseen)} of {len(found)} planted bugs were seen", end="")
    print(f"; interrupted, {wanted or len(found)} were to be hunted" if is_cut else "")
    if unseen and found[0].watch:
        print(f"of which nothing was seen by clients alone: {', '.join(unseen)}")
        return EXIT_INTERRUPTED if is_cut else 0
    if unseen:
        print(f"not seen by a checker that is there for it: {', '.join(unseen)}", file=sys.stderr)
    if known := [name for name in unseen if name not in amiss]:
        print(f"of which that was known: {', '.join(known)}", file=sys.stderr)
    return 1 if amiss else EXIT_INTERRUPTED if is_cut else 0


def _shown(sightings: Iterable[Sighting], found: list[Sighting]) -> bool:
    """Each as it comes; whether somebody ended it (`HeardAtLast`)."""
    try:
        for each in sightings:
            found.append(each)
            how = f"{each.rule}, after {each.seeds} seeds" if each.rule else "NOT SEEN"
            note = f"   ({each.failure[:200]})" if each.failure and not each.was_seen else ""
            print(f"{each.bug:<36} {how}{note}", flush=True)
    except KeyboardInterrupt:
        return True
    return False


def row_of(each: Sighting, before: str) -> str:
    """What clients alone saw is a cell of its own: the others stay then, as it does otherwise."""
    bug, cells = all_bugs()[each.bug], _cells(before)
    if each.watch:
        cells[-1] = f"*{each.rule}*, {each.seeds}" if each.rule else NOBODY
    else:
        rule = f"*{each.rule}*" if each.was_seen else "**not seen**"
        some = [f"`{bug.name}`", bug.breaks, bug.campaign, rule, str(each.seeds), str(bug.seeds)]
        cells = [*some, cells[-1]]
    return f"| {' | '.join(cells)} |"


def _cells(row: str) -> list[str]:
    """Of a row as it was; of one that there was none of, or without the last one, that is empty."""
    cells = row.removeprefix("| ").removesuffix(" |").split(" | ")
    many = HEADER[0].count("|") - 1
    return (cells + [NOBODY] * many)[:many]


def merged(before: str, found: Sequence[Sighting]) -> str:
    """The table with these rows anew; those of bugs that were not run stay, those of bugs that are no more go."""
    old = {row.split("`")[1]: row for row in before.splitlines() if row.startswith("| `")}
    rows = {name: f"| {' | '.join(_cells(row))} |" for name, row in old.items()}
    rows |= {
        each.bug: row_of(each, old.get(each.bug, ""))
        for each in found
        if each.bug in old or not each.watch
    }
    return "\n".join([*HEADER, *(rows[name] for name in all_bugs() if name in rows)])


def listed(bugs: Sequence[Bug]) -> str:
    lines = []
    for each in bugs:
        lines.append(f"{each.name} ({each.campaign}): {each.breaks}")
        seen_as = f"as {' or '.join(each.seen_by)} within {each.seeds} seeds"
        lines.append(f"    {'open: not seen' if each.is_open else 'to be seen'} {seen_as}")
    return "\n".join(lines)


def why_no_table(readme: Path) -> str:
    """Why the table can't be put there; empty when it can."""
    try:
        with readme.open("r+", encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        return f"--write {readme} can't be written ({why}); name a README, as chaos/README.md"
    if BEGIN in text and END in text.partition(BEGIN)[2]:
        return ""
    return (
        f"--write {readme} has no place for the table; put these two lines there: {BEGIN} and {END}"
    )


def _write(readme: Path, found: Sequence[Sighting]) -> None:
    start, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    before, _, after = rest.partition(END)
    readme.write_text(f"{start}{BEGIN}\n{merged(before, found)}\n{END}{after}")
