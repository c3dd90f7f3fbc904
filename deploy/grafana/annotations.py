"""What all boards have: the choice of cluster and nodes, and marks across the graphs where something happened."""

from typing import Any, Final

from panels import Variable
from queries import CLUSTER, NODES

CLUSTERS: Final = Variable("cluster", "Cluster", 'label_values(up{job="fencepost"}, cluster)')
NODE: Final = Variable("node", "Node", f'label_values(up{{job="fencepost", {CLUSTER}}}, instance)')
TOPIC: Final = Variable(
    "topic", "Topic", f"label_values(fencepost_topic_size_bytes{{{CLUSTER}}}, topic)"
)


def _mark(name: str, colour: str, expr: str, title: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "titleFormat": title,
        "textFormat": text,
        "step": "10s",
    }


ANNOTATIONS: Final = (
    _mark(
        "Node started",
        "blue",
        f'time() - process_start_time_seconds{{job="fencepost", {NODES}}} < bool 15 == 1',
        "Node started",
        "{{instance}}",
    ),
    _mark(
        "Alert",
        "red",
        f'ALERTS{{alertname=~"Fencepost.+", alertstate="firing", severity="critical", {CLUSTER}}}',
        "{{alertname}}",
        "{{instance}}",
    ),
)
