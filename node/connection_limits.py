"""How many connections the client doors take: settings that can be changed while the node runs.

INVARIANT  the limit that DescribeConfigs shows is the one by which connections are let in.
PREVENTS   a person who lowers max.connections.per.ip against a flood, is told that it is done, and has the flood stay.
PROVED BY  tests/node/test_connection_limits.py::test_limits_that_are_changed_while_the_node_runs_hold_for_who_comes_then

Whoever is connected already stays, as with Kafka's limit by address.
"""

from fencepost.cluster.metadata.broker_config import BrokerValues
from fencepost.cluster.metadata.image import ConfigType, ImageDelta

from .config import NodeConfig
from .server.places import Places


class ConnectionLimits:
    """Follows the image from its beginning."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self.places = Places(
            config.integer("max.connections"), config.integer("max.connections.per.ip")
        )

    def on_image(self, delta: ImageDelta) -> None:
        if all(kind is not ConfigType.BROKER for kind, _ in delta.configs_changed):
            return
        values = BrokerValues(delta.image, self._config.text, self._config.node_id)
        # Not none at all: whoever set that by a client door could not take it back by one.
        self.places.connections_max = max(1, values.integer("max.connections"))
        self.places.connections_per_ip_max = max(1, values.integer("max.connections.per.ip"))
