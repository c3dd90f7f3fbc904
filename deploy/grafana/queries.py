"""Expressions that several panels share, so that they are written, and understood, once."""

from typing import Final

# What the variables at the top of a board choose.
CLUSTER: Final = 'cluster=~"$cluster"'
NODES: Final = f'{CLUSTER}, instance=~"$node"'
UP: Final = f'up{{job="fencepost", {NODES}}}'


def of(metric: str, *matchers: str, scope: str = NODES) -> str:
    if metric.startswith("process_"):  # every program that Prometheus watches has these
        matchers = ('job="fencepost"', *matchers)
    return f"{metric}{{{', '.join((scope, *matchers))}}}"


def total(metric: str, *matchers: str, by: str = "", scope: str = NODES) -> str:
    return f"{_by('sum', by)}({of(metric, *matchers, scope=scope)})"


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """A counter's, a second."""
    return f"{_by('sum', by)}(rate({of(metric, *matchers)}[$__rate_interval]))"


def increase(metric: str, *matchers: str, by: str = "") -> str:
    """How often, in one step of the graph."""
    return f"{_by('sum', by)}(increase({of(metric, *matchers)}[$__rate_interval]))"


def quantile(share: float, histogram: str, *matchers: str, by: str = "") -> str:
    """Nothing, instead of NaN, while nothing happens."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', *matchers, by=labels)}) >= 0"


def worst(metric: str, *matchers: str, by: str = "", scope: str = NODES) -> str:
    return f"{_by('max', by)}({of(metric, *matchers, scope=scope)})"


def _by(operator: str, labels: str) -> str:
    return f"{operator} by ({labels}) " if labels else operator


def cluster_wide(metric: str, *matchers: str) -> str:
    """A controller's number, whichever node that is."""
    return total(metric, *matchers, scope=CLUSTER)


# Nodes as the controller counts them, also one that is no target of Prometheus any more.
OUT_OF_SERVICE: Final = cluster_wide("fencepost_cluster_brokers", 'state!="active"')
