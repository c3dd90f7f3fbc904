"""What the client door counts, and what Prometheus calls it."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.metrics import LATENCY_S, Histogram, counter, gauge, histogram
from fencepost.cluster.wire.api import ApiKey

# The APIs of the hot path -> where each topic of their `responses` has its partitions.
PARTS: Final[Mapping[ApiKey, str]] = {
    ApiKey.produce: "partition_responses",
    ApiKey.fetch: "partitions",
}


class ApiCounters:
    """Of one API, over all listeners."""

    __slots__ = ("_parts", "errors", "request_bytes", "response_bytes", "seconds")

    def __init__(self, parts: str | None = None) -> None:
        """`parts` as in PARTS: so that an answer without an error is looked at quickly."""
        self._parts = parts
        self.request_bytes = 0
        self.response_bytes = 0
        self.seconds = Histogram()
        self.errors: dict[ErrorCode, int] = {}

    @property
    def requests(self) -> int:
        return self.seconds.count

    def answered(self, seconds: float, fields: Mapping[str, Any] | None) -> None:
        histogram = self.seconds  # `observe`, without the call
        histogram.counts[bisect_left(LATENCY_S, seconds)] += 1
        histogram.total += seconds
        if fields is not None and (self._parts is None or _has_error(fields, self._parts)):
            count_errors(fields, self.errors)


def _has_error(fields: Mapping[str, Any], parts: str) -> bool:
    if fields.get("error_code"):
        return True
    for topic in fields["responses"]:
        for part in topic[parts]:
            if part["error_code"]:
                return True
    return False


def count_errors(fields: Mapping[str, Any], errors: dict[ErrorCode, int]) -> None:
    """Every `error_code` in an answer, at whatever depth its API has them."""
    found = fields.get("error_code")
    if found:
        code = ErrorCode(found)
        errors[code] = errors.get(code, 0) + 1
    for value in fields.values():
        if type(value) is list or type(value) is tuple:
            for each in value:
                if type(each) is not dict:
                    break  # numbers, names: nothing in this list has fields
                count_errors(each, errors)


class ListenerCounters:
    """Of one listener."""

    __slots__ = ("failed", "idle_closed", "malformed", "opened", "refused")

    def __init__(self) -> None:
        self.opened = 0
        self.refused = 0
        self.idle_closed = 0
        self.malformed = 0
        self.failed = 0


CONNECTIONS: Final = gauge("fencepost_connections", "Client connections that are open.", "listener")
CONNECTIONS_MAX: Final = gauge(
    "fencepost_connections_max", "How many there may be at all listeners together: max.connections."
)
OPENED: Final = counter("fencepost_connections_opened_total", "Let in so far.", "listener")
REFUSED: Final = counter(
    "fencepost_connections_refused_total",
    "Hung up on for max.connections or max.connections.per.ip.",
    "listener",
)
IDLE_CLOSED: Final = counter(
    "fencepost_connections_idle_closed_total",
    "Closed for having said nothing for connections.max.idle.ms.",
    "listener",
)
MALFORMED: Final = counter(
    "fencepost_requests_malformed_total",
    "Garbage, unknown APIs and versions; the connection was closed.",
    "listener",
)
FAILED: Final = counter(
    "fencepost_requests_failed_total",
    "Requests that met a fault of this build; the connection was closed.",
    "listener",
)
ADDRESS: Final = gauge(
    "fencepost_advertised_address",
    "1 for what this node found at the address that clients are told; 0 for the others.",
    "listener",
    "state",
)
IN_FLIGHT: Final = gauge(
    "fencepost_requests_in_flight", "Requests that wait for an answer.", "listener"
)
REQUESTS: Final = counter("fencepost_requests_total", "Requests answered.", "api")
ERRORS: Final = counter(
    "fencepost_request_errors_total", "Errors in answers, each by itself.", "api", "error"
)
DURATION: Final = histogram(
    "fencepost_request_duration_seconds",
    "From a request to its answer; with what Fetch, JoinGroup and SyncGroup wait for.",
    "api",
)
REQUEST_BYTES: Final = counter("fencepost_request_bytes_total", "Bytes of requests.", "api")
RESPONSE_BYTES: Final = counter("fencepost_response_bytes_total", "Bytes of answers.", "api")
AUTHENTICATION: Final = counter(
    "fencepost_authentication_failures_total",
    "Not let in: peers, people at the admin door, clients (these need not say who they are yet).",
    "door",
)
THROTTLED: Final = counter(
    "fencepost_quota_throttled_total",
    "Held back: clients by quotas (there are none yet), replication by its rates.",
    "quota",
)
