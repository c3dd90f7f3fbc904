"""Numbers, times and rules as a person reads them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

# What each rule says, for a reader who does not know its name. The names are Jepsen's where it has one.
RULES: Final[dict[str, str]] = {
    "inconsistent-offsets": "one offset of a partition was seen with two different values",
    "duplicate": "one value is in a partition's log more than once",
    "G1a": "a reader saw what its writer was told had failed (an aborted read)",
    "precommitted-read": "a transaction polled what it had itself sent and not yet committed",
    "lost-write": "an acknowledged value was not read, though later ones of its partition were",
    "poll-skip": "a consumer passed over values between two polls, or before its first",
    "nonmonotonic-poll": "a consumer went backwards between two polls",
    "nonmonotonic-send": "a later send of one process has an earlier place",
    "int-poll-skip": "a consumer passed over values inside one operation",
    "int-nonmonotonic-poll": "a consumer went backwards inside one operation",
    "int-send-skip": "values of others lie between two sends of one operation",
    "int-nonmonotonic-send": "a later send of one operation has an earlier place",
    "unseen": "a value that was acknowledged, or read before, was not among the final polls",
    "G0": "transactions wrote around each other in a cycle",
    "G0-process": "transactions wrote around each other in a cycle, with the order of one process",
    "G0-realtime": "transactions wrote around each other in a cycle, with the order of time",
    "G1c": "information went around in a cycle of transactions",
    "G1c-process": "information went around in a cycle, with the order of one process",
    "G1c-realtime": "information went around in a cycle, with the order of time",
    "torn": "of one transaction a part is there and a part is not",
    "torn-transaction": "of one transaction a part is there and a part is not",
    "torn-offset": "a group's offset and the records of its transaction do not stand together",
    "bank-sum": "money was made or lost",
    "bank-snapshot": "what a reader had seen did not add up",
    "doubled": "an input was processed more than once",
    "left-out": "an input was not processed",
    "lost": "an acknowledged record is not there",
    "moved": "an acknowledged record is not at the offset that was told",
    "phantom": "a record is there that nobody sent",
    "unread": "an acknowledged record could not be read",
    "order": "records of one producer are not in the order in which it sent them",
    "reordered": "records of one producer are not in the order in which it sent them",
    "dead-client": "a good client was told what it must never be told",
    "replicas-differ": "replicas of one partition do not hold the same bytes",
    "progress": "nothing was acknowledged though it should have been",
    "no-progress": "nothing was acknowledged though it should have been",
    "unavailable": "nothing was acknowledged for long, though a majority of the nodes was there",
    "stuck-poll": "consumers were shown nothing for long, though there was something new",
    "group-skip": "a group that consumes in transactions passed over records",
    "group-repeat": "a group that consumes in transactions consumed records twice",
    "key-order": "values of one process fall along a partition",
    "key-lost": "nothing is left of a key that had a value",
    "key-back": "a key is at an older value than was committed to it",
    "tombstone-lost": "nothing says any more that a key was deleted, though that is to be kept",
    "held-by-two": "two members of a group had one partition at a time",
    "ended-early": "a transaction was ended before its time was up",
    "unanswered-end": "a half message ended as nobody had answered",
    "expired-early": "a record went before its time was over",
    "never-expired": "a record is there whose time is long over",
    "wrong-time": "the offset of a time is not that of the first record that is not older",
    "altered": "a record has another key, other headers or another timestamp than it was sent with",
    "another-life": "a record, or a position, is in another topic of the same name than it was sent to",
    "position-lost": "a group's position that was acknowledged in a topic is not told of it",
    "topic-lost": "a topic that was made, and that nobody deleted, is not there",
    "setting-lost": "a node has another value of a setting than was acknowledged",
    "topic-back": "a topic that was deleted is there",
    "backwards": "a reader went back",
    "skipped": "a reader passed by what is there",
    "out-of-order": "outputs are not in the order of their inputs",
    "from-nothing": "an output was made of no input",
    "damaged": "a broker served what nobody had sent, or what had another checksum",
    "broken": "whoever ran it saw what must not be, outside of the history",
    "decision-changed": "of one decision different outcomes were told",
    "refused": "a good producer was refused for what the transaction log does not say",
    "unwritten-end": "a producer was told that its transaction has ended, and the transaction log does not say so",
    "stale-read": "a reader was told of an end that was behind what it had been told before",
}
_THOUSAND: Final = 1_000
_MINUTE_S, _HOUR_S = 60, 3_600


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: float, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def short(number: float) -> str:
    """For an axis: 0, 250, 1.5k, 2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def rate(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def milliseconds(ms: float | None) -> str:
    if ms is None:
        return "–"
    if ms >= _THOUSAND:
        return seconds(ms / _THOUSAND)
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.2f} s"
    if value < 2 * _MINUTE_S:
        return f"{value:.1f} s"
    if value < 2 * _HOUR_S:
        return f"{int(value) // _MINUTE_S} min {int(value) % _MINUTE_S} s"
    return f"{int(value) // _HOUR_S} h {int(value) % _HOUR_S // _MINUTE_S} min"


def moment(iso: str) -> str:
    """2026-11-21 16:00 UTC; what is no such time stays as it is."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if at.tzinfo else iso


def listed(counts: Mapping[str, float], *, most: int = 12) -> str:
    """3 × lost-write, 1 × G1a."""
    parts = [f"{count(number)} × {name}" for name, number in _by_count(counts)]
    more = f" and {len(parts) - most} other kinds" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def _by_count(counts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))
