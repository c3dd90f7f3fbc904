"""Kafka's `partition.metadata`: which topic, by id, a folder belongs to."""

import base64
import binascii
from uuid import UUID

from fencepost.cluster.base.ports import Disk


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    """Not synced: that is done with the first batch."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((f"version: 0\ntopic_id: {text}\n".encode(),))
    finally:
        file.close()


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """None when there is no file, or not a whole one."""
    try:
        text = disk.read_all(path).decode("ascii", errors="replace")
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            try:
                return UUID(bytes=base64.urlsafe_b64decode(value.strip() + "=="))
            except (ValueError, binascii.Error):
                return None
    return None
