"""What Prometheus calls the counts of the peer door (`PeerCounters` in `peer_link.py`)."""

from typing import Final

from ..base.metrics import counter, gauge

PEERS: Final = gauge("fencepost_peers", "Other nodes: connected, missing.", "state")
LOST: Final = counter(
    "fencepost_peer_connections_lost_total",
    "Connections to other nodes that ended without being closed.",
)
SILENCES: Final = counter(
    "fencepost_peer_silences_total", "Of them: because nothing came for too long."
)
DROPPED: Final = counter(
    "fencepost_peer_messages_dropped_total", "One-way messages that could not be sent."
)
LATE: Final = counter(
    "fencepost_peer_handshakes_late_total",
    "Connections to the peer door that ended before they had proved who they are, or were proved wrong.",
)
NOT_AFTER: Final = gauge(
    "fencepost_peer_certificate_not_after_timestamp_seconds",
    "When the first certificate that this node shows, or the last that it trusts, expires.",
    "store",
)
REQUESTS: Final = counter("fencepost_peer_requests_total", "Requests to other nodes.")
