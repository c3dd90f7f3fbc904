"""Records that should have been read and are not there any more: a failure that says so, or a skip that is named."""

import logging

log = logging.getLogger("fencepost.clients")


class DataLoss(RuntimeError):
    """What is missing, and what to do about it."""


def report(sentence: str, *, fails: bool) -> None:
    """Raise, or with failOnDataLoss=false log what is left out."""
    if fails:
        raise DataLoss(
            f"{sentence} Some records may have been missed. Start a new query (with a new checkpoint) where the data "
            "begins, keep data for longer (retention.ms), or say failOnDataLoss=false to go on behind it."
        )
    log.warning("%s failOnDataLoss=false: going on behind it.", sentence)
