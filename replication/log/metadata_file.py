"""Kafka's `partition.metadata`: which topic, by id, a folder belongs to; and a last line of ours, its checksum.

Without one a flipped bit made the folder that of another topic: it was set aside, and the replica began empty while it
stood in the ISR.
"""

import base64
import binascii
import zlib
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, LogDamaged
from fencepost.cluster.base.ports import Disk, Env

from .names import METADATA
from .walk import HOW_TO_MEND

CHECKSUM: Final = "crc32: "


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    """Not synced: that is done with the first batch."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((_text_of(topic_id),))
    finally:
        file.close()


def mend_topic_id(env: Env, folder: str, topic_id: UUID, *, is_new: bool) -> None:
    """Of a folder that is this topic's. The process that made it may have been killed before it wrote this file, or before the
    first batch had it synced (`is_new`: nobody knows of a sync): then the folder would be any topic's that gets its name."""
    path = f"{folder}/{METADATA}"
    try:
        if is_new or read_topic_id(env.disk, path) is None:
            env.disk.replace(path, _text_of(topic_id))
    except OSError as error:  # the next start tries again
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        env.log.warn("topic_id_not_written", path=path, cause=str(error))


def _text_of(topic_id: UUID) -> bytes:
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    kafkas = f"version: 0\ntopic_id: {text}\n".encode()
    return kafkas + f"{CHECKSUM}{zlib.crc32(kafkas):08x}\n".encode()


WHOLE: Final = len(_text_of(UUID(int=0)))


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """None when there is no file, or not all of it was written. LogDamaged when what was written has changed."""
    try:
        data = disk.read_all(path)
    except FileNotFoundError:
        return None
    found = _topic_id_in(data.decode("ascii", errors="replace"))
    # A power cut before the first sync leaves less, or zeros; so do Kafka and older builds, who write no checksum.
    is_whole = len(data) == WHOLE and b"\0" not in data
    if is_whole and (found is None or _text_of(found) != data):
        raise LogDamaged(
            f"{path} is damaged: its checksum is of another text, so it is not known whose log lies beside it."
            f" {HOW_TO_MEND}"
        )
    return found


def _topic_id_in(text: str) -> UUID | None:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            try:
                return UUID(bytes=base64.urlsafe_b64decode(value.strip() + "=="))
            except (ValueError, binascii.Error):
                return None
    return None
