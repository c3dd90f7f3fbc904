"""The state machine of the metadata log."""

import enum
from dataclasses import dataclass

from .image import ClusterImage, ImageListener


class Reason(enum.Enum):
    """Why an entry was refused when it was applied: the image had moved on."""


@dataclass(frozen=True, slots=True)
class Applied:
    """`version` of the image that this entry made; the epoch of a broker that it registered."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Reason
    message: str


Result = Applied | Refused


class MetadataMachine:
    """`image` is what all entries so far add up to; `listeners` hear of each applied entry."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.listeners: list[ImageListener] = []

    def apply(self, entry: bytes) -> Result:
        raise NotImplementedError

    def snapshot(self) -> bytes:
        raise NotImplementedError

    def restore(self, snapshot: bytes) -> None:
        raise NotImplementedError
