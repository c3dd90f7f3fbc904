"""How many must be in sync for a record to count as committed, worked out without the node's own word for it.

INVARIANT  what is asked of a partition follows from the metadata and the node's file alone.
PREVENTS   a node that works its minimum out wrongly, and is judged by its own wrong figure.
PROVED BY  tests/sim/test_needed_in_sync.py::test_who_commits_with_fewer_in_sync_than_is_set_is_seen
"""

from typing import Final
from uuid import UUID

from fencepost.cluster.metadata.image import BROKER_DEFAULT, ClusterImage, ConfigType
from fencepost.node.config import NodeConfig

NAME: Final = "min.insync.replicas"


def needed_in_sync(image: ClusterImage, given: NodeConfig, topic_id: UUID, index: int) -> int:
    """The topic's own value, that of all brokers, or the node's; not more than it has copies, without those that a move is adding.
    0 where the topic is gone."""
    topic = image.topics_by_id.get(topic_id)
    state = image.partition_by_id(topic_id, index)
    if topic is None or state is None:
        return 0
    own = image.config(ConfigType.TOPIC, topic.name).get(NAME)
    of_all = image.config(ConfigType.BROKER, BROKER_DEFAULT).get(NAME)
    wanted = own or of_all or given.integer(NAME)
    return min(int(wanted), len(set(state.replicas) - set(state.adding)))
