"""Spark's own Kafka connector, of PySpark's version, from Maven Central: to be measured beside, and to be a client."""

import importlib.metadata
from pathlib import Path

from support.kafka_peer import CACHE, alone, download

VERSION = importlib.metadata.version("pyspark")
# It and what PySpark does not have of what it needs. Each is named, because the repositories that the connector's own
# description adds for the rest are not reached from everywhere.
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    (
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
    ),  # a mirror may have no 4.2
    ("org.apache.kafka", "kafka-clients", "3.9.2"),  # as Spark 4.2.0 has them
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def jars() -> list[Path]:
    """Downloaded at the first call; NotFetched with what Maven said."""
    folder = CACHE / f"spark-kafka-{VERSION}"
    with alone(folder.name):
        if not (folder / "complete").exists():
            download(folder, ARTIFACTS, f"Spark's connector {VERSION}", ALONE)
    return sorted((folder / "libs").glob("*.jar"))
