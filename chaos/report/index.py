"""The page over many runs: `write_index(folder)` finds every run beneath a folder and writes `index.html` there.

Kafka and Fencepost stand side by side wherever both had the same workload and the same faults.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ..checkers.availability import NOT_SERVED
from . import digest, words
from .digest import MOST, Digest
from .markup import page, text
from .page import PAGE, SIGNS, write_page
from .run_folder import INVALID, RUN, UNKNOWN, VALID
from .side_by_side import comparisons

INDEX: Final = "index.html"
DEPTH_MAX: Final = 4
_NOT_FOLLOWED: Final = frozenset({"data", "node_modules"})


def write_index(folder: Path) -> Path:
    runs = [(place, digest_of(place)) for place in run_folders(folder)]
    runs.sort(key=lambda each: each[1].began, reverse=True)
    file = folder / INDEX
    draft = folder / f".{INDEX}.{os.getpid()}"
    draft.write_text(index_of(folder, runs), encoding="utf-8")
    draft.replace(file)
    return file


def run_folders(folder: Path, depth: int = 0) -> Iterator[Path]:
    if (folder / RUN).is_file():
        yield folder
        return
    if depth == DEPTH_MAX:
        return
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        if each.is_dir() and not each.is_symlink() and each.name not in _NOT_FOLLOWED:
            yield from run_folders(each, depth + 1)


def digest_of(folder: Path) -> Digest:
    """What is known of a run; its page is written when it has none yet, or an old one."""
    known = digest.read(folder)
    if known is None or not (folder / PAGE).is_file():
        write_page(folder)
        known = digest.last(folder)
        assert known is not None, f"the digest of {folder} was just written"
    return known


def index_of(folder: Path, runs: Sequence[tuple[Path, Digest]]) -> str:
    found = [each for _, each in runs]
    body = [
        _header(found),
        "<main>",
        comparisons(found),
        _all_runs(folder, runs),
        "</main>",
        "<footer><p>Made by <code>fencepost chaos index</code>. A run's name opens its page.</p></footer>",
    ]
    return page("Fencepost chaos: runs", "\n".join(body), script="index.js")


def _header(found: Sequence[Digest]) -> str:
    verdicts = {kind: sum(each.verdict == kind for each in found) for kind in SIGNS}
    hours = sum(each.seconds for each in found)
    if verdicts[INVALID]:
        state, said = INVALID, f"{words.plural(verdicts[INVALID], 'run')} broke a promise"
    elif verdicts[UNKNOWN]:
        state, said = UNKNOWN, f"Of {words.plural(verdicts[UNKNOWN], 'run')} nothing can be said"
    elif found:
        state, said = VALID, "Every run is valid"
    else:
        state, said = UNKNOWN, "There are no runs yet"
    faults = sum(each.faults_struck for each in found)
    acknowledged = sum(each.acknowledged for each in found)
    operations = sum(sum(each.operations.values()) for each in found)
    cells = [
        ("Runs", words.count(len(found)), _by_verdict(verdicts)),
        ("Under load for", words.seconds(hours), "together"),
        ("Operations", words.count(operations), "of all clients"),
        ("Records acknowledged", words.count(acknowledged), ""),
        (
            "Faults",
            words.count(faults),
            words.plural(len({k for d in found for k in d.struck}), "kind"),
        ),
    ]
    tiles = "".join(
        f"<div><dt>{name}</dt><dd><b>{value}</b><span>{text(note)}</span></dd></div>"
        for name, value, note in cells
    )
    return (
        '<header><p class="over"><b>Fencepost chaos</b></p><h1>Runs on real nodes</h1>'
        f'<div class="verdict {state}"><strong>{SIGNS[state]} {said}</strong></div>'
        f'<dl class="tiles">{tiles}</dl></header>'
    )


def _by_verdict(verdicts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in verdicts.items() if count) or "none"


# -- the table of all --------------------------------------------------------------------------------


_HEAD: Final = (
    ("verdict", False),
    ("run", False),
    ("faults", False),
    ("began", False),
    ("ran for", True),
    ("struck", True),
    ("acknowledged", True),
    ("records/s", True),
    ("anomalies", False),
    ("longest gap", True),
    ("slowest recovery", True),
)


def _all_runs(folder: Path, runs: Sequence[tuple[Path, Digest]]) -> str:
    if not runs:
        return (
            '<section><h2>All runs</h2><div class="panel"><p>None was found here. '
            "<code>fencepost chaos run --help</code> says how to make one.</p></div></section>"
        )
    heads = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{name}</th>' for name, number in _HEAD
    )
    rows = "\n".join(_row(folder, place, each) for place, each in runs)
    return (
        '<section><h2>All runs</h2><div class="panel">'
        '<input class="find" type="search" hidden placeholder="Only rows with these words" aria-label="Filter the runs">'
        '<div class="scroll" tabindex="0" role="region" aria-label="all runs"><table class="sortable runs">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></div></section>"
    )


def _row(folder: Path, place: Path, each: Digest) -> str:
    link = (place.relative_to(folder) / PAGE).as_posix()
    recovery = each.recovery_ms.get(MOST)
    anomalies = words.listed(each.anomalies, most=3) or "none"
    if each.verdict == UNKNOWN and not each.anomalies:
        anomalies = "–"
    tag = f'<span class="tag {each.verdict}">{SIGNS[each.verdict]} {each.verdict}</span>'
    where = f"{each.workload or '?'} on {each.target or '?'}, seed {each.seed or '?'}"
    where += f", {each.load}" if each.load else ""
    name = f'<a href="{_address(link)}"><bdi>{text(each.name or place.name)}</bdi></a>'
    began = words.moment(each.began).removesuffix(" UTC")
    cells = [
        (each.verdict, tag),
        (each.name, f"{name}<small><bdi>{text(where)}</bdi></small>"),
        (None, f"<bdi>{text(', '.join(each.faults) or ', '.join(each.struck))}</bdi>"),
        (each.began, f'<span class="when">{text(began)}</span>'),
        (each.seconds, words.seconds(each.seconds)),
        (each.faults_struck, words.count(each.faults_struck)),
        (each.acknowledged, words.count(each.acknowledged)),
        (each.a_second, words.rate(each.a_second)),
        (None, text(anomalies)),
        (each.longest_gap_s, _gap(each.longest_gap_s)),
        (recovery, _recovery(each)),
    ]
    inside = ""
    for (key, shown), (_, number) in zip(cells, _HEAD, strict=True):
        sorts = (
            ""
            if key is None and shown != "–"
            else f' data-key="{"" if key is None else text(key)}"'
        )
        inside += f"<td{' class=n' if number else ''}{sorts}>{shown}</td>"
    return f"<tr>{inside}</tr>"


def _recovery(each: Digest) -> str:
    never = each.recovery_ms.get(NOT_SERVED)
    more = f"<small>{words.count(never)} not served</small>" if never else ""
    return words.milliseconds(each.recovery_ms.get(MOST)) + more


def _gap(seconds: float | None) -> str:
    return "–" if seconds is None else words.seconds(seconds) if seconds else "under 1 s"


def _address(path: str) -> str:
    """A relative address, whatever its folders are called: never another scheme."""
    from urllib.parse import quote

    return text("./" + quote(path))
