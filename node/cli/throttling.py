"""`--throttle`: no node sends or takes more of what is moved (KIP-73), and how that ends.

INVARIANT  a throttle that is set is taken away with the last of its moves, or whoever set it is told that it stays.
PREVENTS   a cluster whose followers come back at the pace of a move of last month.
PROVED BY  tests/node/test_moving.py::test_an_outage_that_does_not_end_leaves_the_throttle_and_says_what_lifts_it
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

from .checked import Failed
from .wire import Wire

TOPIC, BROKERS, SET, UNSET = 2, 4, 0, 1
SIDES: Final = ("leader", "follower")
RATES: Final = [f"{side}.replication.throttled.rate" for side in SIDES]
THROTTLED: Final = [f"{side}.replication.throttled.replicas" for side in SIDES]
ALL: Final = "*"
OF_THE_TOPIC: Final = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
TOPICS_MAX: Final = 1000  # of one question
# What the next to be asked may answer otherwise, or the same one a little later.
PASSING: Final = (ErrorCode.not_controller, ErrorCode.request_timed_out)

Key = tuple[str, int]
Values = Mapping[str, str | None]


class Refused(Failed):
    """The cluster has answered, and would answer the same again."""


class Throttle:
    """Of the moves of one plan: no node sends or takes more (KIP-73). A topic's begins with its first order."""

    def __init__(
        self, wire: Wire, all_topics: Callable[[], Sequence[str]], bytes_per_s: int | None
    ) -> None:
        """`all_topics`: that there are when it is asked, also those that nothing is moved of."""
        self._wire = wire
        self._all_topics = all_topics
        self._bytes_per_s = bytes_per_s
        self._topics: dict[str, dict[str, str]] = {}  # and what they had before
        self._certain: set[str] = set()  # of these: that it was set was answered
        self._rates_before: Values | None = None  # None while nothing was set

    @property
    def is_set(self) -> bool:
        """Or may be: it was asked for."""
        return bool(self._topics)

    def begin(self, topics: Sequence[str]) -> None:
        """May be asked again after it has failed."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._certain]
        if self._bytes_per_s is None or not new:
            return
        rates: Values = dict.fromkeys(RATES, str(self._bytes_per_s))
        which: Values = dict.fromkeys(THROTTLED, ALL)
        of_topics = [_setting(TOPIC, topic, which) for topic in new]
        unseen = [topic for topic in new if topic not in self._topics]
        before = _throttled(self._wire, unseen)
        if self._rates_before is None:
            self._rates_before = _rates(self._wire)
        self._topics.update((topic, before.get(topic, {})) for topic in unseen)
        _alter(self._wire, [_setting(BROKERS, "", rates), *of_topics])
        self._certain.update(new)

    def end(self, *, but: Sequence[str] = ()) -> None:
        """All but what goes on moving without us."""
        done = [topic for topic in self._topics if topic not in but]
        theirs = [_setting(TOPIC, each, self._topics[each]) for each in done if self._topics[each]]
        if theirs:
            _alter(self._wire, theirs)
        ours = [(each, 0) for each in done if not self._topics[each]]
        if done:
            back = self._rates_to_put_back() if len(done) == len(self._topics) else {}
            lift_throttle(self._wire, self._all_topics(), ours, rates_of_others=back)
        for topic in done:
            del self._topics[topic]

    def _rates_to_put_back(self) -> Values:
        """What others had set, where nobody has set another one since."""
        ours, now = str(self._bytes_per_s), _rates(self._wire)
        before = self._rates_before or {}
        return {name: rate for name, rate in before.items() if now.get(name) == ours}


def lift_throttle(
    wire: Wire,
    all_topics: Sequence[str],
    keys: Sequence[Key],
    *,
    left_behind: bool = False,
    rates_of_others: Values = MappingProxyType({}),
) -> None:
    """Of these partitions. What others are throttled by stays, and the rate while anything is: theirs, where it is told.

    `left_behind`: also of topics that are throttled as a whole, as only these commands do it. A move that arrived
    after its command was ended has nobody else who lifts it.
    """
    throttled = _throttled(wire, all_topics)
    mine: dict[str, set[int]] = {}
    if left_behind:
        whole = [topic for topic, said in throttled.items() if set(said.values()) == {ALL}]
        mine.update((topic, set()) for topic in whole)
    for topic, partition in keys:
        mine.setdefault(topic, set()).add(partition)
    resources = []
    for topic in sorted(mine.keys() & throttled.keys()):
        left = {name: _without(value, mine[topic]) for name, value in throttled.pop(topic).items()}
        resources.append(_setting(TOPIC, topic, left))
        if any(left.values()):
            throttled[topic] = {}
    if not throttled:
        resources.append(_setting(BROKERS, "", dict.fromkeys(RATES)))
    elif rates_of_others:
        resources.append(_setting(BROKERS, "", rates_of_others))
    if resources:
        _alter(wire, resources)


def _throttled(wire: Wire, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Topic -> which replicas of it are throttled, for topics that say so themselves."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), TOPICS_MAX):
        asked = [
            {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": THROTTLED}
            for topic in topics[start : start + TOPICS_MAX]
        ]
        reply = wire.ask(ApiKey.describe_configs, resources=asked, include_synonyms=False)
        for topic in reply.results:
            said = {
                each.name: each.value
                for each in topic.configs
                if each.config_source == OF_THE_TOPIC and each.value
            }
            if said:
                found[topic.resource_name] = said
    return found


def _rates(wire: Wire) -> dict[str, str]:
    """Those that are set for all brokers."""
    asked = {"resource_type": BROKERS, "resource_name": "", "configuration_keys": RATES}
    reply = wire.ask(ApiKey.describe_configs, resources=[asked], include_synonyms=False)
    (told,) = reply.results
    if told.error_code is not ErrorCode.none:
        raise Failed(f"can't read what is throttled: {told.error_message or told.error_code.name}")
    return {each.name: each.value for each in told.configs if each.value is not None}


def _without(value: str, partitions: set[int]) -> str | None:
    """`0:1,0:2,3:1` without what is of these; all of a topic is what such a command set for its moves."""
    if value == ALL:
        return None
    kept = [each for each in value.split(",") if each.partition(":")[0] not in map(str, partitions)]
    return ",".join(kept) or None


def _alter(wire: Wire, resources: Sequence[dict[str, Any]]) -> None:
    reply = wire.ask(ApiKey.incremental_alter_configs, validate_only=False, resources=resources)
    for answer in reply.responses:
        gone = answer.error_code is ErrorCode.unknown_topic_or_partition
        if answer.error_code is not ErrorCode.none and not gone:
            kind = Failed if answer.error_code in PASSING else Refused
            raise kind(f"the throttle was refused: {answer.error_message}")


def _setting(kind: int, name: str, values: Values) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": each, "config_operation": UNSET if value is None else SET, "value": value}
            for each, value in values.items()
        ],
    }
