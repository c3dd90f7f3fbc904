"""Where one segment ends and the next begins, by Kafka's rules (LogSegment.shouldRoll, UnifiedLog.roll)."""

from typing import TYPE_CHECKING

from . import snapshots
from .burial import bury_now
from .config import INT_MAX
from .metadata_file import write_topic_id
from .names import INDEX, METADATA, TIMEINDEX
from .segment import Segment
from .segment_files import remove_if_there
from .sync import sync_now

if TYPE_CHECKING:
    from .log import Log


def must_roll(
    log: "Log", active: Segment, size: int, last_offset: int, newest: int, now_ms: int
) -> bool:
    """Kafka's LogSegment.shouldRoll."""
    config = log.config
    if last_offset - active.base_offset > INT_MAX:
        return True
    if active.size == 0:
        return False
    if active.size + size > config.segment_bytes:
        return True
    first = active.timestamp_of_first()
    waited = newest - first if first >= 0 else now_ms - active.created_ms
    segment_ms = config.segment_ms
    if (
        config.compact and config.max_compaction_lag_ms > 0
    ):  # the cleaner leaves the active one alone
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    if waited > segment_ms - active.jitter_ms:
        return True
    wants_entry = active.bytes_since_index > active.interval
    return wants_entry and active.is_index_full(config.segment_index_bytes)


def roll(log: "Log", now_ms: int, first_offset: int = -1, last_offset: int = -1) -> Segment:
    """Seal the active segment and start another at the log's end."""
    old = log.segments[-1]
    base = log.log_end_offset
    if last_offset - base > INT_MAX:
        base = first_offset  # a gap of two thousand million offsets; nothing else may leave one
    if old.size == 0 and old.base_offset == base:
        return old
    new = new_segment(log, base, now_ms)
    if old.size == 0:
        _drop_last(log)
    else:
        old.seal()
        log.want_sync(old)
        write_index_files(log, old)
        snapshots.write(log)
        log.rolled.append(old)
        log.unsettled()
    log.segments.append(new)
    log.bases.append(base)
    return new


def new_segment(log: "Log", base_offset: int, now_ms: int) -> Segment:
    segment = Segment(
        log.shared.pool,
        log.folder,
        base_offset,
        interval=log.config.index_interval_bytes,
        fresh=True,
        created_ms=now_ms,
    )
    jitter_max = min(log.config.segment_jitter_ms, log.config.segment_ms)
    segment.jitter_ms = log.env.rng.randrange(jitter_max) if jitter_max > 0 else 0
    return segment


def _drop_last(log: "Log") -> None:
    """An active segment that was never written."""
    segment = log.segments.pop()
    log.bases.pop()
    if not segment.fresh:
        bury_now(log, segment)


def create_file(log: "Log", segment: Segment) -> None:
    """Even if empty: its name says where the log ends."""
    if not log.created:
        create_folder(log)
    if segment.fresh:
        segment.file()
        log.folder_version += 1


def make_ready(log: "Log") -> None:
    """Before anything is written: there is a folder, and what was cut off does not come back."""
    if not log.created:
        create_folder(log)
    elif log.cut_unsynced:
        sync_now(log)


def create_folder(log: "Log") -> None:
    if log.shared.removal is not None:
        log.shared.removal.before_writing(log.topic_partition)
    log.env.disk.make_folders(log.folder)
    if log.topic_id is not None:
        path = f"{log.folder}/{METADATA}"
        write_topic_id(log.env.disk, path, log.topic_id)
        log.extra_paths.append(path)
    log.created = True
    log.folder_version += 1


def write_index_files(log: "Log", segment: Segment) -> None:
    try:
        segment.write_indexes()
    except OSError as error:  # they are made anew when they are missed, so missing they must be
        log.env.log.warn("index_not_written", path=segment.path, cause=str(error))
        segment.index_written = segment.times_written = 0
        for suffix in (INDEX, TIMEINDEX):
            remove_if_there(log.env.disk, segment.path_of(suffix))
