"""Are the planted bugs seen? Each in seeds 0, 1, 2, … of its campaign until a checker cries; the table of it all.

A bug that nobody sees within its seeds is the find: a checker, a workload or a fault is missing.
"""

import multiprocessing
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..planted.bugs import Bug, all_bugs
from ..sim.plan import Plan
from .campaign import run_plan

BEGIN: Final = "<!-- written by `fencepost sim planted --write chaos/README.md` -->"
END: Final = "<!-- until here -->"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Which rule was broken first, and in which seed; `rule` is empty when nothing was."""

    bug: str
    rule: str
    seeds: int
    failure: str
    virtual_s: float

    @property
    def was_seen(self) -> bool:
        """By a checker that is there for it; another failure is a sign, and no proof."""
        return self.rule in all_bugs()[self.bug].seen_by


def plan_for(bug: Bug, seed: int) -> Plan:
    return Plan(
        campaign=bug.campaign,
        seed=seed,
        seconds=bug.seconds,
        faults=bug.faults,
        nodes=0 if bug.campaign == "quorum" else 3,
        workloads=bug.workloads,
        protocol=bug.protocol,
        config=bug.config,
        planted=bug.name,
    )


def hunt(name: str) -> Sighting:
    bug = all_bugs()[name]
    virtual_s = 0.0
    for seed in range(bug.seeds):
        outcome = run_plan(plan_for(bug, seed))
        virtual_s += outcome.virtual_s
        if outcome.failure:
            return Sighting(name, outcome.kind, seed + 1, outcome.failure, virtual_s)
    return Sighting(name, "", bug.seeds, "", virtual_s)


def seen(bugs: Sequence[Bug], jobs: int) -> Iterator[Sighting]:
    """One process a bug, as many at one time as there are jobs."""
    names = [each.name for each in bugs]
    if jobs == 1:
        yield from map(hunt, names)
        return
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(hunt, names)


def show_and_write(sightings: Iterable[Sighting], readme: str | None) -> int:
    """The exit code: 1 when a bug was not seen."""
    found = []
    for each in sightings:
        found.append(each)
        how = f"{each.rule}, after {each.seeds} seeds" if each.rule else "NOT SEEN"
        note = "" if each.was_seen else f"   ({each.failure[:200]})"
        print(f"{each.bug:<36} {how}{note}", flush=True)
    unseen = [each.bug for each in found if not each.was_seen]
    if readme is not None:
        _write(Path(readme), table(found))
    print(f"{len(found) - len(unseen)} of {len(found)} planted bugs were seen")
    if unseen:
        print(f"not seen by a checker that is there for it: {', '.join(unseen)}", file=sys.stderr)
    return 1 if unseen else 0


def table(found: Sequence[Sighting]) -> str:
    lines = [
        "| planted bug | what it breaks | campaign | seen as | in seed | of |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        bug = all_bugs()[each.bug]
        rule = f"*{each.rule}*" if each.was_seen else "**not seen**"
        lines.append(
            f"| `{bug.name}` | {bug.breaks} | {bug.campaign} | {rule} | {each.seeds} | {bug.seeds} |"
        )
    return "\n".join(lines)


def listed(bugs: Sequence[Bug]) -> str:
    lines = []
    for each in bugs:
        lines.append(f"{each.name} ({each.campaign}): {each.breaks}")
        lines.append(f"    to be seen as {' or '.join(each.seen_by)} within {each.seeds} seeds")
    return "\n".join(lines)


def _write(readme: Path, rows: str) -> None:
    text = readme.read_text()
    between = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"{readme} has no place for the table: {BEGIN} … {END}")
    readme.write_text(between.sub(lambda _: f"{BEGIN}\n{rows}\n{END}", text))
