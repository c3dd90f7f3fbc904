"""What Prometheus calls what there is of groups."""

from typing import Final

from fencepost.cluster.base.metrics import gauge

GROUPS: Final = gauge(
    "fencepost_groups", "Groups that this node coordinates, by their kind.", "type"
)
