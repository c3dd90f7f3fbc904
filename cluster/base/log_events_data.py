"""The sentences of events about partitions, the disk, transactions and groups; `log_events.py` says what they are for."""

from collections.abc import Mapping
from typing import Final

REPLICATION: Final[Mapping[str, str]] = {
    "isr_shrinks": "{topic}-{partition} drops {leaving} from those in sync, {isr} stay: {cause}.",
    "isr_expands": "{topic}-{partition} takes node {joining} into those in sync, now {isr}: {cause}.",
    "isr_change_unanswered": "{count} changes of in-sync sets were not answered: {cause} They are"
    " asked for again.",
    "isr_change_refused": "The change of {topic}-{partition}'s in-sync set was refused: {cause}. It"
    " is looked at again.",
    "follower_came": "Node {node} follows partitions of this node.",
    "follower_left": "Node {node} follows this node no more.",
    "leader_lost": "The stream from node {node} ended: {cause}. It is opened again.",
    "logs_parted": "{topic}-{partition} parted from the log of its leader, node {leader}, which"
    " says {answer}.",
    "truncated": "{topic}-{partition} was cut from {from_offset} back to {to_offset}, to agree with"
    " its leader; {high_watermark} was committed.",
    "leader_refuses": "Node {leader} does not let this node follow {topic}-{partition}: {cause}. It"
    " is asked again.",
    "following_stopped": "{topic}-{partition} does not follow node {leader} any more: {cause}",
    "read_failed": "{topic}-{partition} can't be read at {offset}: {cause}",
    "read_for_follower_failed": "{topic}-{partition} can't be read at {offset} for node {follower}:"
    " {cause}",
    "producer_fenced": "A batch for {topic}-{partition} is refused, as the epoch of its producer is"
    " over: {cause}. A newer instance of that producer has taken over, or its transaction timed out.",
    "logs_open": "{partitions} partitions are open after {seconds} s, {offline} can't be used.",
    "log_recovered": "{topic}-{partition} was checked from offset {checked_from} on and ends at"
    " {log_end_offset}; {bytes} bytes were not known to be durable: the last run did not stop cleanly.",
    "log_failed": "A write to {topic}-{partition} failed: {cause}",
    "log_not_settled": "{folder} could not be synced: {cause}. It is tried again.",
    "partition_offline": "{topic}-{partition} can't be used on this node: {cause}. Others lead it,"
    " where they can; repair the disk and start this node again.",
    "log_damaged": "{topic}-{partition} was read again, as all logs are now and then: {cause}. Where another"
    " replica is in sync it takes over; alone, this one serves what is well, and refuses what is not.",
    "logs_read_again": "All logs were read again, in {seconds} s. Since the start {bytes} bytes were, and {damaged}"
    " places in them were damaged.",
    "damaged_logs_not_written": "It could not be written down which logs are damaged, in {path}: {cause}. The"
    " next start finds them when it has read them again.",
    "damaged_logs_unreadable": "{path} can't be read: {cause}. Which logs are damaged is found when they have"
    " been read again.",
    "partitions_not_deleted": "The folders of {count} deleted partitions could not be removed: {cause}",
    "doubts_not_written": "It could not be written down which logs acknowledge what is not synced:"
    " {cause}. Until it can be, these sync before they acknowledge, as under flush.policy=ack.",
    "partition_offsets_damaged": "{path} is damaged at {position}. What it knew is found out again"
    " from the logs; that takes longer.",
    "partition_offsets_missing": "{folder} has logs and no checkpoint of them. What it knew is"
    " found out again from the logs; that takes longer.",
    "stray_folders": "{count} folders are of partitions that this cluster does not know, among them"
    " {partitions}. They are left alone: remove them if they are not wanted.",
    "stray_partition": "{folder} is of another topic of that name (id {topic_id}), and is kept as"
    " {kept_as}. Remove it if it is not wanted.",
    "disk_full": "The disk of {folder} is full: {cause}. Writes are refused, reads go on. Free some"
    " space; it goes on by itself.",
    "disk_has_space_again": "The disk has space again: writes go on.",
    "sync_put_off": "{logs} logs could not be synced, for nothing can be opened: {cause}. It is tried"
    " again; until then nothing that waits for it is acknowledged. Raise the limit of open files (ulimit -n).",
    "checkpoint_failed": "No checkpoint could be written: {cause}. It is tried again; until then a"
    " start after a crash takes longer.",
    "retention_failed": "Old segments of {topic}-{partition} could not be deleted: {cause}",
    "compaction_failed": "{topic}-{partition} could not be compacted: {cause}",
    "round_given_up": "The {round} of {topic}-{partition} met a fault of this build, {cause}, at {where}, and is not tried"
    " again before this node is started again. {left} Report this line with its traceback.",
    "cleaning_aborted": "Compaction of {topic}-{partition} was given up: it was deleted or truncated.",
    "segment_not_removed": "{path} could not be removed: {cause}",
    "folder_not_removed": "{folder} could not be removed: {cause}. It is tried at the next start.",
    "index_not_written": "The index {path} could not be written: {cause}. It is made anew when needed.",
    "snapshot_not_written": "The snapshot of producers {path} could not be written: {cause}. It is"
    " tried again; until then a start after a crash reads more of the log, and what was deleted of it may stay on the disk.",
    "spare_not_kept": "{path}, room for a snapshot of producers on a full disk, could not be written: {cause}. It is tried again"
    " with the next snapshot; until then a disk that gets full may need a little room from elsewhere before what is deleted goes.",
    "snapshot_not_usable": "The snapshot of producers {path} can't be used: {cause}. The log says"
    " the same; the start takes longer.",
    "stop_not_clean": "The mark of a clean stop could not be written: {cause}. The next start checks"
    " the logs.",
    "topic_id_not_written": "{path}, which says whose folder it is, could not be written: {cause}. The next"
    " start tries again; until then a topic of the same name takes it for its own.",
    "torn_log_cut": "{bytes_cut} bytes of {path} from {position} on were cut, {cause}: the machine or the"
    " process went down while it wrote them.",
    "cut_is_doubted": "What is cut off {path} from offset {offset} on was all there, so that a bit may have flipped in it after it"
    " was synced: other replicas lead before this one does, which copies from them what it lacks.",
    "offset_is_doubted": "The last batch of {path} begins at offset {offset}, and the one before it ends at {after}, so that a bit of"
    " its offset may have flipped: other replicas lead before this one does, which copies from them what it lacks.",
    "torn_bytes_not_kept": "The torn bytes of {path} could not be kept aside: {cause}",
    "transaction_index_damaged": "The index of aborted transactions {path} is damaged: {cause}. It"
    " is made anew from the log.",
    "leader_epochs_damaged": "The leader epochs {path} are damaged: {cause}. They are made anew from"
    " the log.",
}

TXN: Final[Mapping[str, str]] = {
    "coordinator_loaded": "{shard} is coordinated here: {records} records were read in {took_ms} ms,"
    " {cause}.",
    "coordinator_unloaded": "{shard} is coordinated here no more: {cause}.",
    "coordinator_lost": "{shard} could not be written here: {cause}. It is loaded again, here or"
    " where its leader is.",
    "coordinator_unreadable": "{shard} holds a record that can't be read: {cause} What it keeps is not"
    " served; report this line.",
    "coordinator_left_out": "An answer to {asked} is without what {shard} keeps: it holds a record that can't be"
    " read, which coordinator_unreadable names.",
    "transaction_timed_out": "Transaction {transactional_id} (producer {producer_id}, epoch"
    " {producer_epoch}) was open for longer than its {timeout_ms} ms and is aborted.",
    "transaction_fenced": "Transaction {transactional_id} is aborted and its producer {producer_id},"
    " epoch {producer_epoch}, fenced: {cause}.",
    "transaction_end_refused": "The {wanted} of transaction {transactional_id}, under epoch {named_epoch},"
    " is refused: the transaction is {phase}, under epoch {producer_epoch}.",
    "markers_stuck": "The end of transaction {transactional_id} can't be written to"
    " {topic}-{partition}: {cause}. Readers of committed records wait there; it is tried again.",
    "markers_not_written": "Ends of transactions could not be written at node {broker_id}: {cause} It"
    " is tried again.",
    "transactions_topic_slow": "{topic} is not there yet; transactions wait for it.",
    "transactions_topic_failed": "The topic of transactions can't be made: {cause}",
}

GROUPS: Final[Mapping[str, str]] = {
    "groups_topic_slow": "{topic} is not there yet; groups wait for it.",
    "groups_topic_failed": "The topic of groups can't be made: {cause}",
}
