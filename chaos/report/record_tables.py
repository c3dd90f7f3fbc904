"""The tables of RECORD.md that are counted: written between two marks, everything else there is written by hand."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..runs.plan_words import OLDER_BUILD
from . import record_faults, words
from .digest import RECOVERIES_MIN, Digest
from .markdown import code, named, table
from .nodes_code import NOW, NodesCode
from .record import Campaign, Ledger
from .run_folder import INVALID, UNKNOWN, VALID
from .seeds_once import counted_once
from .side_by_side import NOT_KEPT, OTHERS, SIMULATOR, Side, compared, system_of

BEGIN: Final = "<!-- counted by `fencepost chaos record` -->"
END: Final = "<!-- until here -->"
COMPARED_NOTE: Final = (
    "Kafka's nodes are processes, and stand beside Fencepost's processes alone. *Load* is what was asked for: seconds, clients and "
    "operations a second of each, and all that is not as by default. Runs that differ in it are not in one row, but for older ones, "
    f"of which it was *{NOT_KEPT}*. "
    "*Busy* are runs that began on a machine which had more to do than it has cores: of those only losses can be compared. "
    f"Percentiles are of runs in which at least {RECOVERIES_MIN} faults were recovered from.\n"
)
CODE_NOTE: Final = (
    "*As it stands* is what was run on commits whose nodes are, file by file, those of the commit on which this was counted; "
    "*unknown* had changes that are in no commit, a commit that is not in this history, or nodes of another image. *Upgraded* are of these "
    "hours those of runs that began on an older build, which is replaced node by node first of all.\n"
)
TOTALS_NOTE: Final = (
    "*Asked meanwhile*: of how many faults it was asked, while they went on, that everybody was served; of all others it was asked after "
    "them, or within 30 s. Runs in which nobody has counted that are left out.\n"
)
CODES_MAX: Final = 8
CODE_COMMITS_MAX: Final = 6
COMMITS_MAX: Final = 40
FAILURES_MAX: Final = 60
_SHORT: Final = 7  # of a commit
_SHORT_IMAGE: Final = 12


def write(record: Path, ledger: Ledger) -> None:
    """ValueError when the file has no place for them."""
    text = record.read_text(encoding="utf-8")
    start, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{record} has no place for the tables: {BEGIN} … {END}")
    counted = tables(ledger, NodesCode())
    record.write_text(f"{start}{BEGIN}\n{counted}\n{END}{after}", encoding="utf-8")


def tables(ledger: Ledger, code_of: Callable[[str], str]) -> str:
    """`code_of` says which code of the nodes a commit has (`NodesCode`)."""
    runs, campaigns = list(ledger.runs.values()), counted_once(ledger.campaigns.values())
    if not runs and not campaigns:
        return "Nothing has been counted yet."
    parts = [_totals(runs, campaigns), TOTALS_NOTE]
    parts += ["### By the nodes' code\n", _by_code(runs, campaigns, code_of), CODE_NOTE]
    parts += ["### By commit\n", _by_commit(runs, campaigns)]
    if simulated := record_faults.simulated(campaigns, code_of):
        parts += ["### Faults in the simulator\n", simulated, record_faults.SIMULATED_NOTE]
    if struck := record_faults.struck(runs):
        parts += ["### Faults that struck, on real nodes\n", struck, record_faults.STRUCK_NOTE]
    if whom := record_faults.whom(runs):
        parts += ["### Whom they struck\n", whom, record_faults.WHOM_NOTE]
    if compared := _compared(runs):
        parts += ["### Kafka under the same faults\n", compared, COMPARED_NOTE]
    if failures := _failures(runs, campaigns):
        parts += ["### What failed, as it was counted\n", failures]
    return "\n".join(parts)


# -- all of it ---------------------------------------------------------------------------------------


def _totals(runs: Sequence[Digest], campaigns: Sequence[Campaign]) -> str:
    """One row for each campaign of the simulator, each kind of real nodes, and Kafka."""
    rows = []
    by_name: dict[str, list[Campaign]] = defaultdict(list)
    for each in campaigns:
        by_name[each.campaign].append(each)
    for name, found in sorted(by_name.items()):
        rows.append(_campaign_row(f"simulator, {name}", found))
    if campaigns:
        rows.append(_campaign_row("**simulator, all**", campaigns))
    by_place: dict[str, list[Digest]] = defaultdict(list)
    for run in runs:
        by_place[system_of(run)].append(run)
    for place, of_place in sorted(by_place.items(), key=lambda each: ("Kafka" in each[0], each[0])):
        rows.append(_run_row(place, of_place))
    ours = [run for run in runs if run.target not in {SIMULATOR, *OTHERS}]
    if ours:
        rows.append(_run_row("**Fencepost on real nodes, all**", ours))
    head = (
        "where", "seeds or runs", "hours", "faults", "acknowledged", "failed", "unknown", "asked meanwhile",
    )  # fmt: skip
    return table(head, rows, right=range(1, len(head)))


def _campaign_row(name: str, found: Iterable[Campaign]) -> list[str]:
    found = list(found)
    failed, unknown = _seeds_that_failed(found)
    return [
        name,
        words.plural(sum(each.runs for each in found), "seed"),
        f"{sum(each.virtual_s for each in found) / 3600:,.1f} virtual",
        words.count(sum(sum(each.faults.values()) for each in found)),
        words.count(sum(each.acknowledged for each in found)),
        words.count(failed),
        words.count(unknown),
        "–",
    ]


def _seeds_that_failed(campaigns: Iterable[Campaign]) -> tuple[int, int]:
    """And of how many nothing could be said. One that is another run the second time has failed."""
    kinds = [failure["kind"] for each in campaigns for failure in each.failures]
    unknown = kinds.count(UNKNOWN)
    return len(kinds) - unknown + sum(each.different for each in campaigns), unknown


def _run_row(name: str, found: Sequence[Digest]) -> list[str]:
    verdicts = Counter(each.verdict for each in found)
    return [
        name,
        words.plural(len(found), "run"),
        f"{sum(each.seconds for each in found) / 3600:,.1f}",
        words.count(sum(each.faults_struck for each in found)),
        words.count(sum(each.acknowledged for each in found)),
        words.count(verdicts[INVALID]),
        words.count(verdicts[UNKNOWN]),
        _asked_meanwhile(found),
    ]


def _asked_meanwhile(runs: Iterable[Digest]) -> str:
    counted = [each for each in runs if each.asked_meanwhile is not None]
    if not counted:
        return "–"
    asked = sum(each.asked_meanwhile or 0 for each in counted)
    return f"{words.count(asked)} of {words.count(sum(each.faults_struck for each in counted))}"


# -- by commit, and by the nodes' code -----------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """What was run of Fencepost on some commits."""

    campaigns: list[Campaign] = field(default_factory=list)
    runs: list[Digest] = field(default_factory=list)
    commits: dict[str, str] = field(default_factory=dict)  # and when each was last run

    def began(self, commit: str, when: str) -> None:
        self.commits[_short(commit)] = max(self.commits.get(_short(commit), ""), when)

    @property
    def last(self) -> str:
        return max(self.commits.values())

    def counted(self) -> list[str]:
        return _counted(self.campaigns, self.runs)


def _grouped(
    runs: Iterable[Digest], campaigns: Iterable[Campaign], name_of: Callable[[str], str]
) -> dict[str, _Group]:
    """By what `name_of` makes of their commits; what was run last comes first."""
    groups: dict[str, _Group] = defaultdict(_Group)
    for run in runs:
        if run.target not in OTHERS:
            groups[name_of(run.commit)].runs.append(run)
            groups[name_of(run.commit)].began(run.commit, run.began)
    for each in campaigns:
        groups[name_of(each.commit)].campaigns.append(each)
        groups[name_of(each.commit)].began(each.commit, each.began)
    return dict(sorted(groups.items(), key=lambda named: named[1].last, reverse=True))


def _older(groups: Sequence[_Group], *between: str) -> list[list[str]]:
    """One row for all of them, if there are any; `between` are cells behind its name."""
    if not groups:
        return []
    all_campaigns = [each for group in groups for each in group.campaigns]
    all_runs = [each for group in groups for each in group.runs]
    return [[f"{len(groups)} older ones", *between, *_counted(all_campaigns, all_runs)]]


def _by_code(
    runs: Sequence[Digest], campaigns: Sequence[Campaign], code_of: Callable[[str], str]
) -> str:
    """What stands now comes first, also when nothing was run on it, then the newest."""
    groups = _grouped(runs, campaigns, code_of)
    unknown = groups.pop("", None)
    now = groups.pop(code_of(NOW), _Group())
    known = list(groups.values())
    named = _commits_named(now) or "nothing was run on it yet"
    rows = [
        [f"**as it stands**: {named}", *now.counted()],
        *([_commits_named(each), *each.counted()] for each in known[:CODES_MAX]),
        *_older(known[CODES_MAX:]),
    ]
    if unknown is not None:
        rows.append(["unknown", *unknown.counted()])
    head = ("the nodes of", *COUNTED)
    return table(head, rows, right=range(1, len(head)))


def _commits_named(group: _Group) -> str:
    newest = sorted(group.commits, key=lambda commit: group.commits[commit], reverse=True)
    some = ", ".join(f"`{each}`" for each in newest[:CODE_COMMITS_MAX])
    more = len(newest) - CODE_COMMITS_MAX
    return f"{some} and {more} more" if more > 0 else some


def _by_commit(runs: Sequence[Digest], campaigns: Sequence[Campaign]) -> str:
    """A `+` says that something was changed since that commit."""
    groups = list(_grouped(runs, campaigns, _short).items())
    rows = [
        [f"`{commit}`" if commit else "not known", group.last[:10], *group.counted()]
        for commit, group in groups[:COMMITS_MAX]
    ]
    rows += _older([group for _, group in groups[COMMITS_MAX:]], "")
    head = ("commit", "last", *COUNTED)
    return table(head, rows, right=range(2, len(head))) if rows else ""


COUNTED: Final = ("seeds", "failed", "runs", "hours", "upgraded", "broken", "unknown")


def _counted(campaigns: Sequence[Campaign], runs: Sequence[Digest]) -> list[str]:
    verdicts = Counter(each.verdict for each in runs)
    failed, unknown = _seeds_that_failed(campaigns)
    return [
        words.count(sum(each.runs for each in campaigns)),
        words.count(failed),
        words.count(len(runs)),
        _hours(runs),
        _hours(each for each in runs if OLDER_BUILD in each.versions),
        words.count(verdicts[INVALID]),
        words.count(unknown + verdicts[UNKNOWN]),
    ]


def _hours(runs: Iterable[Digest]) -> str:
    return f"{sum(each.seconds for each in runs) / 3600:,.2f}"


def _short(commit: str) -> str:
    """Of a hash, or of what `git describe --always --dirty` says."""
    changed = "+" if commit.endswith(("+", "-dirty")) else ""
    plain = commit.removesuffix("+").removesuffix("-dirty").rpartition("-g")[2]
    return plain[:_SHORT] + changed


# -- beside Kafka ------------------------------------------------------------------------------------


def _compared(runs: Sequence[Digest]) -> str:
    rows = []
    for (workload, faults, nodes, load), sides in compared(runs).items():
        alike = [named(workload), named(faults), str(nodes or ""), named(load or NOT_KEPT)]
        rows += [[*alike, *_side(each)] for each in sides]
    head = (
        "workload", "faults asked for", "nodes", "load", "system", "runs", "valid", "busy", "hours", "faults that struck", "anomalies",
        "records/s", "longest gap", "recovery p50", "p99", "max", "not served",
    )  # fmt: skip
    return table(head, rows, right=(2, 5, 6, 7, 8, *range(11, 17))) if rows else ""


def _side(side: Side) -> list[str]:
    gap = side.longest_gap_s
    return [
        named(side.system),
        str(len(side.runs)),
        str(sum(each.verdict == VALID for each in side.runs)),
        str(sum(bool(each.load) for each in side.runs)),
        side.hours,
        named(side.struck),
        named(side.anomalies_said),
        words.rate(side.a_second),
        "–" if gap is None else words.seconds(gap) if gap else "under 1 s",
        *(words.milliseconds(side.recovery_ms(name)) for name in ("p50", "p99", "max")),
        side.not_served,
    ]


# -- what failed -------------------------------------------------------------------------------------


def _failures(runs: Sequence[Digest], campaigns: Sequence[Campaign]) -> str:
    """Each with the command that brings it back; what it was is said by hand further down."""
    found: list[tuple[str, list[str]]] = []
    for each in campaigns:
        for failure in each.failures:
            row = [
                f"`{_short(each.commit)}`",
                "simulator",
                named(failure["kind"]),
                code(failure["command"]),
            ]
            found.append((each.began, row))
        if each.different:
            what = f"another run the second time: {words.plural(each.different, 'seed')}"
            again = f"fencepost sim run --campaign {each.campaign} --seeds {each.seeds} {each.asked or ''}"
            row = [f"`{_short(each.commit)}`", "simulator", what, code(again.strip())]
            found.append((each.began, row))
    for run in runs:
        if run.verdict == INVALID:
            what = words.listed(run.anomalies, most=4) or run.why[:200]
            again = f"seed {run.seed}, {run.name}"
            row = [_code_of(run), system_of(run), named(what), named(again)]
            found.append((run.began, row))
    found.sort(key=lambda each: each[0], reverse=True)
    rows = [[began[:10], *row] for began, row in found[:FAILURES_MAX]]
    if not rows:
        return ""
    more = len(found) - len(rows)
    tail = f"\n{more} older ones are in record.jsonl.\n" if more else ""
    return table(("when", "commit", "where", "what", "again"), rows, right=()) + tail


def _code_of(run: Digest) -> str:
    """Of its nodes: a commit, or an image that nobody knows the commit of."""
    image = run.versions.get("image", "").rpartition(":")[2]
    if run.commit or not image:
        return f"`{_short(run.commit)}`" if run.commit else "not known"
    return f"image {code(image[:_SHORT_IMAGE])}"
