"""The words of `fencepost chaos run`, apart from what they stand for: help and completion import nothing else."""

from collections.abc import Mapping
from typing import Final

QUEUE: Final = "queue"
WORKLOADS: Final = (
    QUEUE,
    "bank",
    "pipeline",
    "append",
    "subscribe",
    "added",
    "streams",
    "compacted",
    "long",
    "churn",
    "tuned",
    "transfers",
)
KAFKA: Final = "kafka"
TARGETS: Final = ("processes", "containers", KAFKA)
OLDER_BUILD: Final = "older build"  # among the versions of a run that begins on one
ANOTHER: Final = "another broker"  # than any of these, which an older loop is told the command of
# What can't be: workloads on targets, faults in workloads.
NOT_ON: Final[Mapping[tuple[str, str], str]] = {
    ("added", "kafka"): "Kafka has no transaction groups and no half messages",
}
TRANSACTIONAL: Final = ("zombie", "sleeper", "epochs")  # faults of who has a transactional id
ONCE: Final = "each of its ids is used once, and nobody else may have it"
NOT_IN: Final[Mapping[tuple[str, str], str]] = {
    ("added", "zombie"): ONCE,
    ("added", "epochs"): ONCE,
    (
        "compacted",
        "upgrade",
    ): "builds before 28f2c85 let a deleted key come back with a replica that was away",
    **{("streams", fault): "its producers have no transactional ids" for fault in TRANSACTIONAL},
}
FAULTS_BY_DEFAULT: Final = ("kill", "pause", "cut")
