"""Records that should have been read and are not there any more: a failure that says so, or a skip that is named."""

import logging
from typing import Final

log = logging.getLogger("fencepost.clients")


MISSED: Final = "Some records may have been missed."
AGED_OUT: Final = (
    f"{MISSED} Start a new query (with a new checkpoint) where the data begins, keep data for longer (retention.ms), or say "
    "failOnDataLoss=false to go on behind it."
)
# Of what no broker lists: one that is cut off from its cluster does not know what was made since.
NOT_LISTED: Final = (
    f"{MISSED} Start the query again; if it stays so, start a new query (with a new checkpoint), or say "
    "failOnDataLoss=false to go on without it."
)
# Nothing was missed yet: it is in the topic.
NOT_ASKED_FOR: Final = "Ask for it again, or start a new query (with a new checkpoint), or say failOnDataLoss=false to go on without it."
BEHIND_IT: Final = "going on behind it"


class DataLoss(RuntimeError):
    """What is missing, and what to do about it."""


def report(
    sentence: str, *, fails: bool, advice: str = AGED_OUT, going_on: str = BEHIND_IT
) -> None:
    """Raise, or with failOnDataLoss=false log what is left out."""
    if fails:
        raise DataLoss(f"{sentence} {advice}")
    log.warning("%s failOnDataLoss=false: %s.", sentence, going_on)
