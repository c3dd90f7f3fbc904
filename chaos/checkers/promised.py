"""How soon each key acknowledges again while a fault goes on that leaves a majority: what each system promises, timer by timer.

INVARIANT  a bound is the sum of the timers that have to run out, of the system and of these clients; each has its source here.
PREVENTS   a bound that is drawn from what was seen, or so wide that no fault lasts as long.
PROVED BY  tests/chaos/test_queue_promised.py::test_kafka_is_asked_by_its_own_session,
           tests/chaos/test_queue_promised.py::test_settings_of_the_run_are_what_it_promises

Who is away is fenced when its session is over, and others lead. A copy that is heard by the controller and not by its
leader, or whose disk hangs, is waited for until `replica.lag.time.max.ms`, in Kafka as in Fencepost.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

NEVER: Final = float("inf")
SESSION: Final = "broker.session.timeout.ms"
LAG: Final = "replica.lag.time.max.ms"
ELECTED_S: Final = 2.0  # a killed controller costs 1.5 s: tests/sim/test_cluster_scenarios.py
# `socket.timeout.ms` and `topic.metadata.refresh.interval.ms` of the workloads' clients (workloads/txn_process.py).
CLIENT_S: Final = 4.0 + 1.0
# Transactions of these loads time out after 6 s, and are swept every second (runs/run.py, runs/workloads.py).
OPEN_S: Final = 6.0 + 1.0

# A client may sleep before its commit for twice what its transaction may last (workloads/txn_habits.py): where a key has one
# or two that write to it, nobody else is served meanwhile.
DAWDLES_S: Final = {"pipeline": 2 * 6.0}

# Forms of a fault that make a difference here: a line of faults.jsonl says which it had.
PARTIAL: Final = "partial"  # two nodes don't reach each other, a third reaches both
STALE: Final = "stale"  # nodes that are cut off go on to hear clients, and to say that they lead
RING: Final = "ring"  # no two nodes hear each other: nobody can be asked anything
STUCK: Final = "stuck"  # syncs do not come back
SLIGHT: Final = "slight"  # slower, and no transaction lasts longer than it may
# Of runs that were kept before lines had one.
WORDS: Final = {
    "each hears one of the two others only": RING,
    "each sees a majority, and no two the same": RING,
    "don't reach each other": PARTIAL,
    "syncs are stuck": STUCK,
}
# (fault, form) that is waited for as a copy that lags.
LAGS: Final = frozenset({("cut", PARTIAL), ("disk-slow", STUCK), ("disk-slow", "")})
# What is waited for so, as a fault of its own: no node of it is away, and nobody is served.
WAITS: Final = ("waits", "")
# The clients' own ways take longer than their transactions may last: nothing is owed before its end.
TOO_SLOW: Final = frozenset({("slow", "")})


def form_of(fault: Mapping[str, Any]) -> str:
    said = fault.get("form")
    if said is not None:
        return str(said)
    what = str(fault.get("what", ""))
    return next((form for words, form in WORDS.items() if words in what), "")


def is_waited_for(fault: Mapping[str, Any]) -> bool:
    return (str(fault.get("fault")), form_of(fault)) in LAGS


@dataclass(frozen=True, slots=True)
class Promise:
    """Defaults are Fencepost's."""

    session_s: float = 3.0
    lag_s: float = 30.0
    dawdles_s: float = 0.0

    @property
    def shown_s(self) -> float:
        """For a consumer to be shown what was acknowledged: in case of need it is behind a transaction of a killed client."""
        return self.session_s + ELECTED_S + CLIENT_S + OPEN_S

    def waits(
        self, faults: Iterable[Mapping[str, Any]], healed_s: float | None
    ) -> Iterator[dict[str, Any]]:
        """From the beginning of each fault of `LAGS` until it is over, or nobody waits any more."""
        for fault in filter(is_waited_for, faults):
            begins_s, until_s = float(fault["at_s"]), fault.get("until_s")
            ends_s = [begins_s + self.lag_s, healed_s if until_s is None else float(until_s)]
            over_s = min(each for each in ends_s if each is not None)
            kind, form = WAITS
            yield {"at_s": begins_s, "until_s": over_s, "fault": kind, "form": form, "nodes": ()}

    def within_s(self, fault: Mapping[str, Any]) -> float:
        """From its beginning, or from when a majority is there."""
        kind = str(fault.get("fault")), form_of(fault)
        if kind in TOO_SLOW:
            return NEVER
        lag_s = self.lag_s if kind in LAGS else 0.0
        # Who asks such a node for the leaders is sent to it once more: an old leader is an answer like any other.
        again_s = CLIENT_S if kind == ("cut", STALE) else 0.0
        return self.session_s + ELECTED_S + CLIENT_S + again_s + self.dawdles_s + lag_s


SESSIONS_S: Final = {"kafka": 9.0}  # broker.session.timeout.ms, where it is not Fencepost's 3 s


def promise_of(target: str, settings: Iterable[str], workload: str = "") -> Promise:
    """Of a system, and what a run has set (`name=value`); to the clients of a workload."""
    usual = Promise(session_s=SESSIONS_S.get(target, Promise().session_s))
    chosen = dict(each.partition("=")[::2] for each in settings)
    return Promise(
        session_s=float(chosen[SESSION]) / 1000 if SESSION in chosen else usual.session_s,
        lag_s=float(chosen[LAG]) / 1000 if LAG in chosen else usual.lag_s,
        dawdles_s=DAWDLES_S.get(workload, 0.0),
    )
