"""Seeds that were run again count once: on one commit, with the same options, they are the same run.

INVARIANT  of a seed that a campaign has run before on that commit, with those options, nothing counts again; but for a failure
           that it did not have then. What nobody knows to be the same (a line without options, a checkout with changes) counts.
PREVENTS   hours and seeds of a record that grow by running one command twice.
PROVED BY  tests/chaos/test_report_record.py::test_seeds_that_were_run_again_with_the_same_options_count_once,
           tests/chaos/test_report_record.py::test_of_seeds_that_were_run_again_only_the_new_ones_count

What a campaign measured is known of all of its seeds together: where some are new, as large a share of it counts.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .record import Campaign


@dataclass(slots=True)
class _Known:
    seeds: set[int] = field(default_factory=set)
    failures: set[tuple[str, str]] = field(default_factory=set)  # seed and kind


def counted_once(campaigns: Iterable[Campaign]) -> list[Campaign]:
    """In the order in which they began."""
    before: dict[tuple[str, str, str], _Known] = defaultdict(_Known)
    found = []
    for each in sorted(campaigns, key=lambda campaign: campaign.began):
        seeds = _seeds_of(each)
        if seeds is None or each.asked is None or not each.commit or each.commit.endswith("+"):
            found.append(each)
            continue
        known = before[each.campaign, each.commit, each.asked]
        found.append(_without(each, known, len(seeds - known.seeds)))
        known.seeds |= seeds
        known.failures |= {(failure["seed"], failure["kind"]) for failure in each.failures}
    return found


def _without(campaign: Campaign, known: _Known, new: int) -> Campaign:
    if new == campaign.runs:
        return campaign
    share = new / campaign.runs
    failures = [
        each for each in campaign.failures if (each["seed"], each["kind"]) not in known.failures
    ]
    return replace(
        campaign,
        runs=new,
        virtual_s=campaign.virtual_s * share,
        real_s=campaign.real_s * share,
        acknowledged=round(campaign.acknowledged * share),
        faults={name: count * share for name, count in campaign.faults.items()},
        failures=tuple(failures),
    )


def _seeds_of(campaign: Campaign) -> set[int] | None:
    """As `summary.spans` writes them down; None for what is not so, or are others than so many."""
    spans = []
    for span in campaign.seeds.split(","):
        first, dots, end = span.partition("..")
        if not first.isdecimal() or (dots and not end.isdecimal()):
            return None
        spans.append(range(int(first), int(end) if dots else int(first) + 1))
    if sum(map(len, spans)) != campaign.runs:
        return None
    return {seed for span in spans for seed in span}
