"""Whom Metadata names to librdkafka: the nodes that serve, and those that did until a moment ago.

INVARIANT  a node that is fenced goes on being named for NAMED_S, and no longer; who leads what is told at once.
PREVENTS   a transactional librdkafka that stands still because the node that coordinated its group died.
PROVED BY  tests/node/test_recent_brokers.py::test_a_node_that_died_is_named_for_a_while

librdkafka 2.10 to 2.16 takes a node that Metadata no longer names off its list and ends its thread, but still takes it for the
coordinator of its group (`rd_kafka_broker_decommission`, `rd_kafka_coord_req_fsm`; its issue 5511). Nothing wakes it
then: `send_offsets_to_transaction` waits with no end. As long as the node is named, each attempt to connect fails, and after a
second it asks for the coordinator again. A Kafka names a dead node to everybody for its session, nine seconds. Clients that
ask all nodes (franz-go, kafka-python, kafkajs list groups so) fail on it meanwhile, so only librdkafka is told, as it says itself in ApiVersions.
"""

from typing import Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Clock
from fencepost.cluster.metadata.image import BrokerState, ClusterImage, ImageDelta

# Longer than most transactions, and than a node takes that starts again.
NAMED_S: Final = 30.0


class RecentBrokers:
    """Follows the image from its beginning; a node that starts takes what it reads first for what has just been."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._served: dict[BrokerId, None] = {}
        self._fenced_s: dict[BrokerId, float] = {}

    def on_image(self, delta: ImageDelta) -> None:
        for broker_id in delta.brokers_changed:
            broker = delta.image.brokers.get(broker_id)
            if broker is None:
                self._served.pop(broker_id, None)
                self._fenced_s.pop(broker_id, None)
            elif not broker.fenced:
                self._served[broker_id] = None
                self._fenced_s.pop(broker_id, None)
            elif broker_id in self._served:
                del self._served[broker_id]
                self._fenced_s[broker_id] = self._clock.steady()

    def named(self, image: ClusterImage) -> list[BrokerState]:
        """By id."""
        since = self._clock.steady() - NAMED_S
        return [
            image.brokers[id_]
            for id_ in sorted(image.brokers)
            if not image.brokers[id_].fenced or self._fenced_s.get(id_, since) > since
        ]
