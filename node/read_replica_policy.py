"""Which replica a consumer should read from (KIP-392), if it is not the leader.

INVARIANT  a consumer is sent only to a replica in the ISR, alive, that has the offset which it asks for.
PREVENTS   a consumer bounced to and fro between a leader that sends it away and a follower that has nothing for it.
PROVED BY  tests/node/test_read_replica_policy.py::test_a_consumer_is_sent_only_where_its_offset_is

The choice is Kafka's RackAwareReplicaSelector: the leader if it is in the consumer's rack or if nobody is, else who of
that rack has most of the log; then who was caught up last, then the higher id.
"""

from collections.abc import Mapping
from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import BrokerState
from fencepost.replication.partition import Partition

# The one selector there is: Kafka's name for it, as a Kafka's configuration has it.
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_read_replica(
    partition: Partition,
    offset: int,
    rack: str,
    brokers: Mapping[BrokerId, BrokerState],
    listener: str,
) -> BrokerId | None:
    """Who else of the consumer's rack should be read from; None: whoever was asked, who leads or is no leader."""
    if not rack or not partition.is_leader:
        return None
    machine = partition.machine
    leader = brokers.get(BrokerId(machine.broker_id))
    if leader is not None and leader.rack == rack:
        return None
    best: tuple[int, int, BrokerId] | None = None
    for broker_id in partition.replicas_to_read(offset):
        replica = machine.replicas.get(broker_id)
        broker = brokers.get(broker_id)
        if (
            replica is not None
            and broker is not None
            and broker.rack == rack
            and not broker.fenced
            and broker.endpoint(listener) is not None
        ):
            found = (replica.log_end, replica.caught_up_ms, broker_id)
            best = found if best is None else max(best, found)
    return None if best is None else best[2]
