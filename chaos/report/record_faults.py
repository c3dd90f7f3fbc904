"""Which faults struck, and whom: in the simulator, and on real nodes. A 0 shows what nothing has looked at."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from ..campaigns.campaign import CAMPAIGNS
from ..faults.kinds import FAULTS
from ..faults.targets import TARGETS as WHOM
from ..runs.plan_words import TARGETS
from . import words
from .digest import Digest
from .markdown import table
from .nodes_code import NOW
from .record import Campaign
from .struck import Struck

SIMULATED_NOTE: Final = (
    "By `fencepost sim run`, over all campaigns that have them: on the nodes' code as it stands, and ever. Those that are only played when they "
    "are asked for by name are asked for by `asked_for.sh`.\n"
)
STRUCK_NOTE: Final = (
    "By `fencepost chaos run`; what a target can't have stands at 0, too (`faults/README.md`).\n"
)
WHOM_NOTE: Final = "The same, of runs that have kept it: since the evening of 2026-11-30. *coordinator* is one of a transaction or a group.\n"


def simulated(campaigns: Sequence[Campaign], code_of: Callable[[str], str]) -> str:
    """Each kind that there is, also those that never came."""
    now, in_all = Counter[str](), Counter[str]()
    as_it_stands = code_of(NOW)
    for each in campaigns:
        times = {name: round(count) for name, count in each.faults.items()}
        in_all.update(times)
        if as_it_stands and code_of(each.commit) == as_it_stands:
            now.update(times)
    kinds = dict.fromkeys(name for campaign in CAMPAIGNS.values() for name in campaign.faults)
    rows = [[f"`{name}`", words.count(now[name]), words.count(in_all[name])] for name in kinds]
    return table(("fault", "as it stands", "in all"), rows, right=(1, 2)) if campaigns else ""


def struck(runs: Sequence[Digest]) -> str:
    """Each kind that there is, also those that never came; who cannot have one is at 0, too."""
    found = Struck(runs)
    rows = [
        [f"`{name}`", *(words.count(found.counts[target, name]) for target in TARGETS)]
        for name in FAULTS
    ]
    return table(("fault", *TARGETS), rows, right=range(1, 4)) if found.counts else ""


def whom(runs: Sequence[Digest]) -> str:
    """One node, whoever leads, a majority: each that there is, also those that never came."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for target, times in run.whom.items():
            counts[run.target, target] += times
    rows = [[name, *(words.count(counts[each, name]) for each in TARGETS)] for name in WHOM]
    return table(("target", *TARGETS), rows, right=range(1, 4)) if counts else ""
