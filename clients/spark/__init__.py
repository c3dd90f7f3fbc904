"""Spark reads and writes Fencepost, exactly once: the data source `fencepost` of PySpark.

pip install '.[spark]', in the checkout
from fencepost.clients.spark import register

What does not need Spark can be imported without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Have this session know the format `fencepost`."""
    from .source import FencepostDataSource

    spark.dataSource.register(FencepostDataSource)
