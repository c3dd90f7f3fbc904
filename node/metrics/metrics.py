"""All that watches a node: made by `broker.py`, asked at the admin door."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.cluster.base.metrics import Histogram
from fencepost.cluster.quorum.figures import figures_of

from .health import Answers, Health
from .loop_lag import LoopLag
from .names import DECLARED
from .of_clients import OfClients
from .of_cluster import OfCluster
from .of_coordinators import OfCoordinators
from .of_node import OfNode
from .of_replicas import OfReplicas
from .scrape import Scrape

if TYPE_CHECKING:
    from ..broker import Broker


class Metrics:
    """Of one node."""

    def __init__(self, node: "Broker") -> None:
        self._node = node
        self._began = node.env.clock.steady()
        self._led_by: tuple[object, int] | None = None
        self._behind_since: float | None = None
        self.start_s = 0.0
        self.loop_lag = LoopLag(node.env.clock)
        self.scrape_s = Histogram()
        self.turns_s = Histogram()
        self.health = Health(node)
        self.scrape = Scrape(
            node.env,
            DECLARED,
            [
                OfNode(node, self.health),
                OfClients(node),
                OfReplicas(node),
                OfCoordinators(node),
                OfCluster(node),
            ],
            took=self.scrape_s,
            turns=self.turns_s,
        )
        node.quorum.on_leader_change.append(self._on_leader_change)

    def told(self) -> Mapping[str, Answers]:
        """What the admin door tells to everybody."""
        health = self.health
        return {
            "/metrics": self.scrape.reply,
            "/health/live": health.live,
            "/health/ready": health.ready,
        }

    def start(self) -> None:
        """Once somebody can ask."""
        self.loop_lag.start(self._look)

    def stop(self) -> None:
        self.loop_lag.stop()

    def node_is_ready(self) -> None:
        self.start_s = self._node.env.clock.steady() - self._began

    @property
    def behind_s(self) -> float:
        """For how long this node has not had all metadata that it knows to be committed, as far as was looked."""
        now = self._node.env.clock.steady()
        return 0.0 if self._behind_since is None else now - self._behind_since

    def _look(self) -> None:
        if not figures_of(self._node.quorum).lag:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._node.env.clock.steady()

    def _on_leader_change(self) -> None:
        quorum = self._node.quorum
        now = quorum.leader_id, quorum.term
        if quorum.leader_id is not None and now != self._led_by:
            self._led_by = now
            quorum.counters.leader_changes += 1
