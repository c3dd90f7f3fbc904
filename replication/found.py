"""What a start has found of the run before, said once."""

from collections.abc import Set as AbstractSet
from typing import Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Log

from .log.store import LogStore

STRAYS_NAMED_MAX: Final = 20


def tell_unclean(log: Log, store: LogStore) -> None:
    """What a kill left to do, so that it is seen that there was one."""
    if store.is_new or store.was_clean:
        return
    found = store.shared.recovered
    why = "its machine went down"
    if store.same_boot:
        why = "its process was killed or broke off; an exit code of 137 is a kill, by the kernel if memory ran out"
    log.warn(
        "last_run_unclean",
        cause=why,
        partitions=found.logs,
        bytes=found.records_bytes,
        bytes_cut=found.cut_bytes,
    )


def name_strays(log: Log, store: LogStore, known: AbstractSet[TopicPartition]) -> None:
    """Folders of topics that are gone are left alone: if it is the metadata that was lost, they are all there is."""
    strays = [str(name) for name in store.folders() if name not in known]
    if strays:
        log.warn("stray_folders", count=len(strays), partitions=strays[:STRAYS_NAMED_MAX])
