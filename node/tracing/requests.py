"""Following clients' requests: which are slow and where their time went, and every step of those that are asked for.

INVARIANT  a request that is neither slow nor asked for costs two attributes and one comparison: no text, no clock.
PREVENTS   a log of requests that is turned off for its cost, and so is off when it is needed.
PROVED BY  tests/node/test_request_log.py::test_a_slow_request_is_logged_with_where_its_time_went

A request's id is `NODE-CONNECTION-CORRELATION`: the node that the client asked, the connection's number there since
that node's start, and the number that the client gave the request. It goes to other nodes in the header of what is
asked of them (`cluster/base/request_scope.py`), so one search through the logs of all nodes finds all of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.request_scope import RequestScope, current_scope
from fencepost.cluster.metadata.broker_config import BrokerValues
from fencepost.cluster.metadata.image import ClusterImage, ConfigType, ImageDelta
from fencepost.cluster.metadata.request_filter import RequestFilter
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.peer_door import PeerDoor

from ..server.dispatch import Call, Fields
from .spans import Attributes, Span, Spans

# When group commits began and ended, the latest last (`replication/flusher.py`).
Syncs = Callable[[], Iterable[tuple[float, float]]]

SPAN: Final = "span"  # a message to followers
CLIENT_CHARS_MAX: Final = 200  # of its name: the protocol lets it have 32 KiB
SLACK_S: Final = 0.002  # wall clocks are read in milliseconds
# A request that waits for other members of its group, for as long as they like.
_WAITS_FOR_OTHERS: Final = frozenset({ApiKey.join_group, ApiKey.sync_group})


class RequestTracing:
    """Of one node. `settings` are those of its file; what is set while it runs comes with the image."""

    def __init__(
        self,
        env: Env,
        node_id: BrokerId,
        settings: Mapping[str, str],
        *,
        syncs: Syncs,
        door: PeerDoor | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._settings = settings
        self._syncs = syncs
        self._door = door
        self._image = ClusterImage()
        if door is not None:
            door.follow_requests(self)
            door.on_message(SPAN, self._on_span)
        self.spans = spans
        self._filter = RequestFilter()
        self._slow_s = math.inf
        self.tell_from_s = math.inf  # requests that took less are of no interest
        self.begins = False  # whether `began` wants to be called
        self._set_levels: Callable[[str], None] | None = getattr(env.log, "set_levels", None)
        self.read_settings(self._image)

    # -- settings ----------------------------------------------------------------------------------

    def on_image(self, delta: ImageDelta) -> None:
        self._image = delta.image
        if any(kind is ConfigType.BROKER for kind, _ in delta.configs_changed):
            self.read_settings(delta.image)

    def read_settings(self, image: ClusterImage) -> None:
        self._image = image
        values = BrokerValues(image, self._settings, self._node_id)
        self._filter = RequestFilter.parse(str(values.of("request.log") or ""))
        limit_ms = values.integer("request.log.slow.ms")
        self._slow_s = math.inf if limit_ms < 0 else limit_ms / 1000
        self.begins = bool(self._filter) or self.spans is not None
        self.tell_from_s = 0.0 if self.begins else self._slow_s
        if self._set_levels is not None:
            self._set_levels(str(values.of("log.level")))

    # -- of clients --------------------------------------------------------------------------------

    def scope_of(self, connection: int) -> RequestScope:
        return RequestScope(f"{self._node_id}-{connection}")

    def began(self, scope: RequestScope, call: Call) -> None:
        """A request was read. Only called while `begins`."""
        context = call.context
        scope.is_told = self._filter.takes(call.api.key, context.client_id, context.origin.host)
        call.is_told, scope.trace = scope.is_told, ""
        if self.spans is not None:
            call.span = self.spans.begin(
                call.api.name,
                call.arrived_s,
                {
                    "messaging.system": "kafka",
                    "fencepost.node_id": self._node_id,
                    "fencepost.request_id": scope.request_id,
                    "messaging.client.id": context.client_id[:CLIENT_CHARS_MAX],
                },
            )
            scope.trace = "" if call.span is None else call.span.traceparent

    def answered(self, call: Call, started_s: float, took_s: float, fields: Fields | None) -> None:
        """It took at least `tell_from_s`, or is one of those that are told."""
        is_slow = took_s - _may_wait_s(call) >= self._slow_s
        if not (is_slow or call.is_told or call.span is not None):
            return  # spans are made, and not of this one
        where = self._where(call, started_s, took_s)
        if is_slow:
            self._tell_slow(call, where, started_s + took_s)
        if call.is_told:
            self._env.log.info(
                "request",
                **self._named(call, started_s + took_s),
                version=call.context.api_version,
                outcome=outcome_of(fields),
                **{f"{name}_ms": _ms(end - begin) for name, begin, end in where},
            )
        if call.span is not None:
            for name, begin, end in where:
                call.span.child(name, begin, end)
            call.span.end(started_s + took_s, outcome_of(fields))
            if call.api.key is ApiKey.produce:
                self._ask_followers(call, started_s, started_s + took_s)

    # -- of followers ------------------------------------------------------------------------------

    def _ask_followers(self, call: Call, begin_s: float, end_s: float) -> None:
        """They are to add what they did for it: a sampled request's only message, one way, when it is over."""
        if self._door is None:
            return
        image, followers = self._image, set[BrokerId]()
        for topic in call.request.body.topic_data:
            for wanted in topic.partition_data:
                state = (
                    image.partition_by_id(topic.topic_id, wanted.index)
                    if hasattr(topic, "topic_id")
                    else image.partition(topic.name, wanted.index)
                )
                followers.update(() if state is None else state.isr)
        ago_s = self._env.clock.steady() - begin_s
        window = [self._env.clock.now_ms() - ago_s * 1000, (end_s - begin_s) * 1000]
        for node_id in sorted(followers - {self._node_id}):
            self._door.send(node_id, SPAN, {"trace": call.span.traceparent, "window": window})

    def _on_span(self, _peer_id: BrokerId, header: dict[str, Any], _payload: memoryview) -> None:
        """The leader's request took that window: the group commit in it had its batches, here as there."""
        match header:
            case {
                "trace": str(trace),
                "window": [int() | float() as wall_ms, int() | float() as ms],
            }:
                pass
            case _:
                return  # of another version; nothing but a span is lost
        if self.spans is None:
            return
        begin_s = self._env.clock.steady() - (self._env.clock.now_ms() - wall_ms) / 1000
        begin_s, end_s = begin_s - SLACK_S, begin_s + ms / 1000 + SLACK_S
        for begin, end in self._syncs():
            if begin_s <= begin < end <= end_s:
                self.spans.remote(trace, "sync", begin, end, {"fencepost.node_id": self._node_id})
                return

    # -- lines -------------------------------------------------------------------------------------

    def _tell_slow(self, call: Call, where: "Where", ended_s: float) -> None:
        longest = max(where, key=lambda part: part[2] - part[1])
        took = _ms(longest[2] - longest[1])
        self._env.log.warn(
            "request_slow",
            **self._named(call, ended_s),
            limit_ms=_ms(self._slow_s),
            longest=f"{took} ms of it {_IN_WORDS[longest[0]]}",
            **{f"{name}_ms": _ms(end - begin) for name, begin, end in where},
        )

    def _named(self, call: Call, ended_s: float) -> dict[str, Any]:
        origin = call.context.origin
        return {
            "request_id": self.request_id(call),
            "api": call.api.name,
            "client": call.context.client_id[:CLIENT_CHARS_MAX] or "a client without a name",
            "remote": f"{origin.host}:{origin.port}",
            "total_ms": _ms(ended_s - call.arrived_s),
        }

    def request_id(self, call: Call) -> str:
        """The connection's scope may be at a later request by now."""
        origin, request = call.context.origin, call.request
        return f"{self._node_id}-{origin.connection}-{request.correlation_id}"

    def _where(self, call: Call, started_s: float, took_s: float) -> "Where":
        """Where its time went, from clocks that were read anyway.

        A produce request's batches are in the page cache before its handler returns; the first group commit that
        begins after that covers them. What is left when that has ended is spent on other replicas.
        """
        ended_s = started_s + took_s
        where: Where = [("queue", call.arrived_s, started_s)]
        if call.api.begin is None:
            scope = current_scope()  # the connection does one such request at a time
            elsewhere_s = 0.0 if scope is None else min(scope.peers_s, took_s)
            handled_s = ended_s - elsewhere_s
            return [*where, ("work", started_s, handled_s), ("peers", handled_s, ended_s)]
        found = next((each for each in self._syncs() if started_s <= each[0] < ended_s), None)
        if found is None:  # flush.policy is not `ack`, or it was refused at once
            return [*where, ("replicas", started_s, ended_s)]
        begin_s, end_s = found[0], min(found[1], ended_s)
        return [
            *where,
            ("append", started_s, begin_s),
            ("sync", begin_s, end_s),
            ("replicas", end_s, ended_s),
        ]

    # -- of other nodes (PeerTracer) -----------------------------------------------------------------

    def asked(
        self, scope: RequestScope, node_id: BrokerId, kind: str, took_s: float, outcome: str
    ) -> None:
        self._tell_peer("peer_request_sent", scope, node_id, kind, took_s, outcome)

    def served(
        self, scope: RequestScope, node_id: BrokerId, kind: str, took_s: float, outcome: str
    ) -> None:
        self._tell_peer("peer_request", scope, node_id, kind, took_s, outcome)

    def _tell_peer(
        self,
        event: str,
        scope: RequestScope,
        node_id: BrokerId,
        kind: str,
        took_s: float,
        outcome: str,
    ) -> None:
        say = self._env.log.info if scope.is_told else self._env.log.debug
        say(
            event,
            request_id=scope.request_id,
            node=node_id,
            kind=kind,
            outcome=outcome,
            total_ms=_ms(took_s),
        )
        if self.spans is not None and scope.trace:
            ended_s = self._env.clock.steady()
            name = f"{kind} at node {node_id}" if event == "peer_request_sent" else kind
            attributes: Attributes = {
                "fencepost.node_id": self._node_id,
                "fencepost.outcome": outcome,
            }
            self.spans.remote(scope.trace, name, ended_s - took_s, ended_s, attributes)


Where = list[tuple[str, float, float]]  # a part of a request's time: its name, begin and end
_IN_WORDS: Final[Mapping[str, str]] = {
    "queue": "before it was begun: checks of large batches, or its transaction's coordinator",
    "append": "until the disk was free for it",
    "sync": "while the disk synced it",
    "replicas": "until enough replicas had it",
    "work": "in its handler",
    "peers": "while other nodes did what they were asked",
}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _may_wait_s(call: Call) -> float:
    """What the client asked to wait for at most, as a fetch does: that is no slowness."""
    if call.api.key in _WAITS_FOR_OTHERS:
        return math.inf
    if not call.api.parks:
        return 0.0
    waits = getattr(call.request.body, "max_wait", None)
    return math.inf if waits is None else max(0.0, float(waits.total_seconds()))


def outcome_of(fields: Mapping[str, Any] | None) -> str:
    """Kafka's name of the first error in an answer, or `none`."""
    if fields is None:
        return "no answer"
    code = _first_error(fields)
    return "none" if code is None else code.name


def _first_error(fields: Mapping[str, Any]) -> ErrorCode | None:
    code = fields.get("error_code")
    if code:
        return ErrorCode(code)
    for value in fields.values():
        if isinstance(value, list | tuple):
            for each in value:
                found = _first_error(each) if isinstance(each, Mapping) else None
                if found is not None:
                    return found
    return None


__all__ = ["RequestTracing", "Span", "outcome_of"]
