"""A scene for each alert, in the order of alerts.yml."""

from client_scenes import CLIENTS, PROCESS, TRANSACTIONS
from cluster_scenes import DISKS, QUORUM, REPLICAS, SERVICE

SCENES = (*SERVICE, *QUORUM, *REPLICAS, *DISKS, *PROCESS, *CLIENTS, *TRANSACTIONS)
