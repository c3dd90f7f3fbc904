"""Which disk the partitions without a leader wait for: their nodes are asked, as Metadata tells only that a replica is offline."""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.offline import LOST_DISK, complete_replicas
from fencepost.cluster.wire.api import ApiKey

if TYPE_CHECKING:
    from .wire import Wire


def name_lost_disks(wire: "Wire", image: ClusterImage) -> None:
    """In the image, as a node's own has it. Nobody is asked while all partitions have leaders."""
    suspects = {
        each
        for topic in image.topics.values()
        for now in topic.partitions
        if now.leader == NO_LEADER
        for each in complete_replicas(now)
        if each in now.offline
    }
    for broker in image.alive_brokers():
        if broker.broker_id not in suspects:
            continue
        with contextlib.suppress(Trouble):
            reply = wire.ask_node(broker.endpoints[0], ApiKey.describe_log_dirs, topics=None)
            for folder in reply.results:
                if folder.log_dir.startswith(LOST_DISK):
                    disk = UUID(folder.log_dir.removeprefix(LOST_DISK))
                    image.brokers[broker.broker_id] = replace(broker, waits_for_disk=disk)
