"""All metrics there are, in the order of the README's tables; and those of the node itself, which no folder below counts.

INVARIANT  a name is declared once, and its labels have no more values than there are APIs, error codes, listeners, states
           or nodes; topics only where `metrics.topics` asks for them.
PREVENTS   a monitoring system that dies of the series of a hundred thousand transactional ids.
PROVED BY  tests/node/test_metrics_names.py::test_the_readme_has_every_metric_as_it_is_declared
"""

from typing import Final

from fencepost.cluster.base.metrics import Declared, counter, declared_in, gauge, histogram
from fencepost.cluster.controller import metrics as controller
from fencepost.cluster.quorum import metrics as quorum
from fencepost.cluster.wire import metrics as wire
from fencepost.replication import metrics as replication
from fencepost.txn.groups import metrics as groups
from fencepost.txn.runtime import metrics as coordinators
from fencepost.txn.transactions import metrics as transactions

from ..server import metrics as server

BUILD: Final = gauge("fencepost_build_info", "1; which build this is.", "version", "python")
NODE: Final = gauge(
    "fencepost_node_info", "1; which node of which cluster this is.", "node", "cluster", "rack"
)
STATE: Final = gauge(
    "fencepost_node_state", "1 for the state that /health/ready tells, 0 for the others.", "state"
)
READY: Final = gauge("fencepost_node_ready", "1 if /health/ready says 200.")
START: Final = gauge(
    "fencepost_node_start", "1 for what the logs showed at the last start, 0 for the others.", "was"
)
START_SECONDS: Final = gauge(
    "fencepost_node_start_seconds",
    "From the start of the node until it let clients in; 0 until then.",
)
LOOP_LAG: Final = histogram(
    "fencepost_loop_lag_seconds", "How late the event loop is, measured four times a second."
)
CLOCK_JUMPS: Final = counter(
    "fencepost_clock_jumps_total",
    "Times that the wall clock was set by a second or more, as far as this process knows.",
)
SCRAPE: Final = histogram(
    "fencepost_scrape_seconds", "How long this node took for a scrape, from first number to last."
)
SCRAPE_TURN: Final = histogram(
    "fencepost_scrape_turn_seconds", "For how long at a time a scrape kept the loop."
)
HEARTBEAT_AGE: Final = gauge(
    "fencepost_heartbeat_age_seconds", "Since the controller last answered this node's heartbeat."
)
CPU: Final = counter("process_cpu_seconds_total", "User and system time of the process.")
RESIDENT: Final = gauge("process_resident_memory_bytes", "Memory that the process holds.")
VIRTUAL: Final = gauge("process_virtual_memory_bytes", "Addresses that the process has.")
OPEN_FDS: Final = gauge("process_open_fds", "Open file descriptors.")
MAX_FDS: Final = gauge("process_max_fds", "How many there may be.")
ACCEPTED: Final = gauge(
    "fencepost_accepted_connections",
    "Connections that came in through any door and are open: of clients, nodes and people.",
)
ACCEPTED_MAX: Final = gauge(
    "fencepost_accepted_connections_max",
    "With so many no client is let in: three quarters of process_max_fds.",
)
ACCEPT_PAUSES: Final = counter(
    "fencepost_accept_pauses_total",
    "Times that a door took nobody for a moment, for want of descriptors.",
)
THREADS: Final = gauge("process_threads", "Threads of the process.")
STARTED: Final = gauge("process_start_time_seconds", "When the process began, since the epoch.")

_PARTS: Final = (
    globals(),
    vars(server),
    vars(replication),
    vars(coordinators),
    vars(groups),
    vars(transactions),
    vars(quorum),
    vars(wire),
    vars(controller),
)
DECLARED: Final[tuple[Declared, ...]] = tuple(
    each for part in _PARTS for each in declared_in(dict(part))
)
assert len({each.name for each in DECLARED}) == len(DECLARED), "a metric is declared twice"
