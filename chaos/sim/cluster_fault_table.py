"""The faults of a simulated cluster by the names that `--faults` takes."""

from typing import Final

from .aimed_faults import left_behind, unheard_write
from .cluster_disks import (
    failing_disk,
    failing_files,
    failing_log,
    full_disk,
    replace_disk,
    rotten_file,
    rotten_log,
    slow_disk,
)
from .cluster_faults import ON_TOP, ClusterFaults, Fault
from .cluster_members import broker_comes, broker_goes, change_voters, older_build
from .cluster_put_back import put_back_disk
from .cluster_rare_disks import (
    full_at_a_sync,
    full_for_long,
    full_then_power,
    no_descriptors,
    read_only,
)
from .cluster_rare_faults import clock, drift, each_write, reorder, suspend
from .cluster_stopped_rot import rotten_stopped
from .slow_reader import slow_reader

FAULTS: Final[dict[str, Fault]] = {
    "kill": ClusterFaults.kill,
    "kill-controller": ClusterFaults.kill_controller,
    "kill-two": ClusterFaults.kill_two,
    "kill-all": ClusterFaults.kill_all,
    "power-one": ClusterFaults.power_one,
    "power-all": ClusterFaults.power_all,
    "power-apart": ClusterFaults.power_apart,
    "stop": ClusterFaults.stop,
    "pause": ClusterFaults.pause,
    "at-a-write": ClusterFaults.at_a_write,
    "at-a-moment": ClusterFaults.at_a_moment,
    "cut": ClusterFaults.cut,
    "isolate": ClusterFaults.isolate,
    "cut-client": ClusterFaults.cut_client,
    "reset": ClusterFaults.reset,
    "delay": ClusterFaults.delay,
    "full-disk": full_disk,
    "failing-disk": failing_disk,
    "failing-files": failing_files,
    "failing-log": failing_log,
    "slow-disk": slow_disk,
    "full-then-power": full_then_power,
    "full-at-a-sync": full_at_a_sync,
    "full-for-long": full_for_long,
    "read-only": read_only,
    "no-descriptors": no_descriptors,
    "clock": clock,
    "reorder": reorder,
    "change-voters": change_voters,
    "replace-disk": replace_disk,
    "put-back-disk": put_back_disk,
    "rotten-file": rotten_file,
    "rotten-log": rotten_log,
    "rotten-stopped": rotten_stopped,
    "broker-comes": broker_comes,
    "broker-goes": broker_goes,
    "older-build": older_build,
    "drift": drift,
    "suspend": suspend,
    "each-write": each_write,
    "left-behind": left_behind,
    "unheard-write": unheard_write,
    "slow-reader": slow_reader,
}
# Only when asked for: runs in which everything happens have worse.
ASKED_FOR: Final = (
    "power-apart",
    "failing-log",
    "full-for-long",
    "put-back-disk",
    "each-write",
    "left-behind",
    "unheard-write",
    "slow-reader",
)
_ON_TOP: Final = {name for _, names in ON_TOP.values() for name in names}
USUAL: Final = tuple(name for name in FAULTS if name not in (*ASKED_FOR, *_ON_TOP))
