"""Nodes that have applied as much of the metadata log have the same image, to the last byte."""

from collections.abc import Iterable

from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.metadata.snapshot import write_snapshot

from ..checkers.history import Anomaly


def compare_images(images: Iterable[tuple[int, ClusterImage]]) -> list[Anomaly]:
    """Of nodes; equal images give equal bytes."""
    first: dict[int, tuple[int, bytes]] = {}
    found = []
    for node_id, image in images:
        packed = write_snapshot(image)
        other, known = first.setdefault(image.version, (node_id, packed))
        if packed != known:
            what = f"nodes {other} and {node_id} have other images of version {image.version}"
            found.append(Anomaly("images-differ", "metadata", what))
    return found
