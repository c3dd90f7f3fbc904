"""The words of `fencepost chaos run`, apart from what they stand for: help and completion import nothing else."""

from typing import Final

WORKLOADS: Final = ("queue", "bank")
TARGETS: Final = ("processes", "containers", "kafka")
FAULTS_BY_DEFAULT: Final = ("kill", "pause", "cut")
