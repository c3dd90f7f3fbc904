"""Every event that a node logs: its area, and the sentence that says it to a person.

INVARIANT  an event that the code logs stands here, once, with no field in its sentence that the code does not give.
PREVENTS   an alert on a line's name that somebody has since spelt otherwise; a sentence with a hole in it.
PROVED BY  tests/tidy/test_log_events.py::test_every_event_that_is_logged_has_a_sentence_whose_fields_it_is_given

Names and fields are for machines, and stay; sentences are for people, and may be put better. Partitions, the
coordinators and what is on the disk are in `log_events_data.py`.
"""

from collections.abc import Mapping
from functools import cache
from string import Formatter
from typing import Final

from .host_names import host_and_port
from .log_events_data import GROUPS, REPLICATION, TXN

CLUSTER: Final[Mapping[str, str]] = {
    "peer_up": "Connected with node {node}.",
    "peer_lost": "The connection with node {node} ended: {cause}. It is tried again.",
    "peer_gone": "The process of node {node} is dead: its machine refuses connections to the peer door.",
    "peer_unreachable": "Node {node} can't be reached: {cause}. It is tried again.",
    "peer_refuses": "Node {node} does not let this node in: {cause}",
    "peer_refused": "A peer at {remote} is not let in: {cause}",
    "peer_message_unknown": "Node {node} sent a message of kind {kind}, which this build does not"
    " know: run the same version on all nodes.",
    "life_not_written": "That another life of this node's folder begins can't be written, and is told to nobody: {cause}."
    " Were a copy of the folder put back, it might pass for the folder.",
    "peer_lives_not_kept": "{path} is not written: {cause}. Which life each node is in is known until this one ends.",
    "peer_lives_unreadable": "{path} can't be read: {cause}. A folder of before that is put back at another node while"
    " this one was down may pass.",
    "peer_stream_lost": "A stream of node {node} ended: {cause}",
    "peer_stream_ended": "A stream of node {node} was ended: {cause}",
    "connection_ended": "The connection with {remote} ended: {cause}",
    "http_connection_failed": "An HTTP connection failed: {cause}",
    "http_request_refused": "What {remote} sends to the HTTP door is not understood: {cause}",
    "http_request_failed": "A request of {remote} at the HTTP door failed by a fault of this node: {cause}",
    "accepting_paused": "No new connections on port {port} for a moment, {open} are open: {cause}."
    " If this goes on, raise the limit of open files (ulimit -n, LimitNOFILE) and restart, or let fewer"
    " clients in (max.connections).",
    "file_range_unreadable": "{path} can't be read at {position}: {cause}. The connection that was"
    " promised these bytes is closed.",
    "loop_exception": "The event loop reports: {cause}",
    "broken_invariant": "An invariant is broken, so this node ends at once (exit code 70) and"
    " leaves everything as it is: {cause}. Start it again, and report this line.",
    "node_ends": "This node ends at once (exit code {exit_code}): {cause}",
    "library_warns": "{library} says: {cause}",
    "lines_left_out": "{left_out} more lines of {of} were left out.",
    "clock_jumped": "The wall clock was set {direction} by {by_s} s, from {before} to {after}."
    " Timeouts and sessions here run on a clock that does not jump; timestamps of new records"
    " follow the wall clock. Run a time service that slews (chrony, ntpd -x).",
    "clock_behind_last_run": "The wall clock says {now}, and the last run of this node went on"
    " until {last_seen}, {by_s} s later: it was set back in between. New records get earlier"
    " timestamps than older ones; check the machine's time service.",
}

QUORUM: Final[Mapping[str, str]] = {
    "quorum_leader_elected": "This node leads the metadata quorum in term {term}: {cause}.",
    "quorum_lead_lost": "This node does not lead the metadata quorum any more, since term {term}"
    " node {leader} does: {cause}.",
    "quorum_leader_seen": "Node {leader} leads the metadata quorum in term {term}.",
    "quorum_vote_not_stored": "A vote could not be stored: {cause}. This node stands for no"
    " election until it can.",
    "quorum_vote_copy_damaged": "One of two copies of the last vote was made anew from the other: {cause}",
    "quorum_vote_copy_owed": "The second copy of the last vote beside {path} could not be made: {cause}. The first one is whole;"
    " start this build once more before an older one.",
    "quorum_is_of_others": "This node waits to be taken into the cluster of node {node}. {cause}",
    "quorum_waits_for_all_voters": "The quorum waits for node(s) {missing}: {cause} Start them; where one"
    " runs, peer_refuses or peer_unreachable in this log says why it is not heard.",
    "journal_torn_tail_cut": "{bytes} torn bytes at {position} of {path} were cut: the machine or"
    " the process went down while it wrote them. Nothing that was acknowledged was in them.",
    "journal_not_sealed": "The metadata journal in {folder} could not be sealed: {cause}",
    "raft": "Raft: {message}",
    "metadata_disk_full": "The disk of {folder} is full ({cause}): the metadata log takes nothing"
    " more, and this node does not lead it. Free some space; it goes on by itself.",
    "metadata_disk_has_room_again": "The disk of {folder} has room again: the metadata log goes on.",
    "metadata_no_descriptors": "No file can be opened in {folder} ({cause}): the metadata log takes nothing"
    " more, and this node does not lead it. It goes on by itself when files can be opened; raise the"
    " limit of open files (ulimit -n) if this comes back.",
    "metadata_files_open_again": "Files in {folder} can be opened again: the metadata log goes on.",
    "metadata_snapshot_failed": "No snapshot of the metadata could be written in {folder}: {cause}."
    " It is tried again; until then the journal grows.",
    "quorum_snapshot_refused": "A snapshot of the metadata that node {node} sent is not taken: {cause} It is asked for again.",
    "metadata_snapshot_unreadable": "The leader's snapshot of the metadata, up to entry {last}, is not taken: {cause}"
    " What this node knows stays as it is, and does not grow.",
    "metadata_snapshot_installed": "A snapshot of the metadata up to entry {last} was installed.",
    "voters_changed": "The voters of the metadata quorum are now {voters}: {asked}.",
}

CONTROLLER: Final[Mapping[str, str]] = {
    "broker_fenced": "Node {broker} is fenced, its partitions get other leaders: {cause}.",
    "broker_unfenced": "Node {broker} is let in: {cause}.",
    "broker_leaving": "Node {broker} asked to stop: its leaderships move first.",
    "broker_came": "Node {broker} registered (broker epoch {broker_epoch}): {cause}.",
    "broker_unregistered": "Node {broker} was taken off the list: {cause}.",
    "leader_elected": "{topic}-{partition} is led by node {leader} in epoch {leader_epoch} (before:"
    " node {before}), in sync are {isr}: {cause}.",
    "leader_elected_unclean": "{topic}-{partition} is led by node {leader} in epoch {leader_epoch},"
    " which may lack records that were acknowledged: {cause}.",
    "partition_without_leader": "{topic}-{partition} has no leader: {cause}. It waits for one of"
    " {eligible}; start that node, or give its records up by `fencepost partition recover`.",
    "isr_changed": "{topic}-{partition} has {isr} in sync instead of {before}: {cause}.",
    "move_begun": "{topic}-{partition} moves from {before} to {replicas}: {cause}.",
    "move_done": "{topic}-{partition} has moved: its replicas are {replicas}.",
    "move_cancelled": "The move of {topic}-{partition} was cancelled, its replicas stay"
    " {replicas}: {cause}.",
    "replica_offline": "{topic}-{partition} lost the replica(s) on {offline}: {cause}.",
    "partitions_changed_too": "{count} more partitions changed likewise, {without_leader} of them"
    " have no leader: {cause}.",
    "metadata_level": "Metadata is written at level {level} of {newest}: {cause}.",
    "topic_created": "Topic {topic} was made, with {partitions} partitions: {cause}.",
    "topic_deleted": "Topic {topic} was deleted: {cause}.",
    "controller_command_refused": "What node {peer} asked of the controller is refused: {cause}",
    "controller_decides_again": "The controller decides {command} again: {cause}",
    "controller_round_failed": "A round of the controller's duties failed: {cause} It is repeated.",
    "image_behind_the_controller": "This node's metadata is at {at} and does not reach {wanted} in"
    " time. What was asked is done; it may be seen here a little later.",
}

NODE: Final[Mapping[str, str]] = {
    "node_starts": "Node {node_id} starts, version {version}, data in {folder}.",
    "node_ready": "Node {node_id} is ready; clients come to {listeners}.",
    "node_stopping": "Told to stop: {cause}. Leaderships move away, then the logs are closed.",
    "node_stopped": "Stopped cleanly after {seconds} s: the next start trusts what is on the disk.",
    "node_stopped_early": "Told to stop while it was still starting: it ends as it is. Nothing was"
    " promised to anybody, and the next start goes on from the same files.",
    "node_refused": "This node can't run (exit code {exit_code}): {cause}",
    "last_run_unclean": "The last run ended without a clean stop ({cause}). Recovered {bytes} bytes in"
    " {partitions} partitions, and cut {bytes_cut} torn bytes that nobody was told were written.",
    "address_unresolved": "{listener} is advertised as {host}:{port}, and that name can't be"
    " resolved from here: {cause}. Clients that can't either never reach this node; correct"
    " advertised.listeners, or the name service.",
    "address_not_reached": "{listener} is advertised as {host}:{port}, where nothing answers from"
    " here: {cause}. That is right only if clients come from another network.",
    "address_of_another": "{listener} is advertised as {host}:{port}, and another server than this"
    " node answers there: clients would be sent to the wrong one. Correct advertised.listeners.",
    "address_checked": "{listener} is advertised as {host}:{port}, which leads here.",
    "admin_open": "The admin door is open at {address}.",
    "admin_closed_to_all": "The admin door at {address} is half open: {cause}. Set admin.token to a"
    " secret to use the rest.",
    "admin_request_refused": "The admin door refused {asked} of {remote}: {cause}.",
    "admin_call_failed": "{what} could not be asked of node {node}: {cause}",
    "broker_registered": "The cluster has registered this node (broker epoch {broker_epoch}).",
    "broker_not_registered_yet": "This node is not registered yet: {cause} It is tried again.",
    "broker_registers_again": "This node registers again: {cause}",
    "broker_was_fenced": "The cluster took this node for dead and fenced it (broker epoch"
    " {broker_epoch}): it was not heard for broker.session.timeout.ms. It comes back by itself.",
    "heartbeat_failed": "No heartbeat got through: {cause} It is tried again.",
    "disk_report_failed": "The controller was not told whether this node's disk is full: {cause} It is tried again.",
    "leaderships_not_handed_over": "Leaderships were not handed over before the stop: {cause}."
    " Other nodes take them over when they miss this one.",
    "connection_refused": "A connection from {remote} is refused: {limit} allows {allowed}.",
    "connections_left_open": "{open} connections of {listener} were still open at the stop.",
    "client_request_refused": "A request of {remote} is not the protocol, {then}: {cause}",
    "client_request_failed": "A request of {remote} failed by a fault of this node, {then}: {cause}",
    "topic_auto_create_failed": "Topics {topics} could not be made: {cause}",
    "no_producer_id": "No producer id could be had from the controller: {cause} The client is told"
    " to ask again.",
}

REQUESTS: Final[Mapping[str, str]] = {
    "request_slow": "{api} of {client} took {total_ms} ms, {longest}: the limit of"
    " request.log.slow.ms is {limit_ms} ms.",
    "request": "{api} v{version} of {client} was answered {outcome} after {total_ms} ms.",
    "peer_request": "Node {node} asked for {kind}, answered {outcome} after {total_ms} ms.",
    "peer_request_sent": "{kind} was asked of node {node}, answered {outcome} after {total_ms} ms.",
}

_AREAS: Final[Mapping[str, Mapping[str, str]]] = {
    "cluster": CLUSTER,
    "quorum": QUORUM,
    "controller": CONTROLLER,
    "replication": REPLICATION,
    "txn": TXN,
    "groups": GROUPS,
    "node": NODE,
    "requests": REQUESTS,
}
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    event: (area, sentence) for area, events in _AREAS.items() for event, sentence in events.items()
}


def _words(value: object) -> object:
    """Of what is a list or a map for programs."""
    match value:
        case (str(host), int(port)):
            return host_and_port(host, port)
        case [str(), *_]:
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{name} {_words(each)}" for name, each in value.items())
    return value


class _Known(dict[str, object]):
    """A field that is not there is a question mark, never an error: this is the log."""

    def __getitem__(self, name: str) -> object:
        return _words(super().__getitem__(name))

    def __missing__(self, name: str) -> str:
        return "?"


def area_of(event: str) -> str:
    return EVENTS[event][0] if event in EVENTS else "node"


@cache
def said_by(event: str) -> frozenset[str]:
    """The fields that its sentence has: a person need not read them twice."""
    sentence = EVENTS[event][1] if event in EVENTS else ""
    return frozenset(name for _, name, _, _ in Formatter().parse(sentence) if name)


def sentence_of(event: str, fields: Mapping[str, object]) -> str:
    """What a person reads. An event that is not in the table, of tests for example, is its own sentence."""
    known = EVENTS.get(event)
    return event if known is None else known[1].format_map(_Known(fields))
