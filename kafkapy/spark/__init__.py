"""The PySpark data source `kafkapy`, which reads and writes topics as DataFrames, in batch and streaming queries.

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    spark.read.format("kafkapy").options(**options).load()

Spark finds the source by itself if kafkapy is installed with its extra `spark`, through the package `pyspark_kafkapy`.
Call `register` where Spark cannot, for example for a session on another machine's Spark Connect server.

The options have the names, defaults and meanings of those of Spark's own Kafka source: docs/spark.md.
"""

from typing import Any

from kafkapy.spark.requirements import check_requirements, check_workers

__all__ = ["check_requirements", "register"]


def register(spark: Any) -> None:
    """Register the data sources `kafkapy` and `kafkapy-log` in a Spark session that does not know them yet.

    Raises MissingRequirement, whose message says what to install.
    """
    check_requirements()
    if not type(spark).__module__.startswith("pyspark.sql.connect"):  # a Spark Connect server starts its own workers
        check_workers()
    from pyspark.errors import PySparkException

    from kafkapy.spark.log_source import KafkapyLogDataSource
    from kafkapy.spark.source import KafkapyDataSource

    for source in (KafkapyDataSource, KafkapyLogDataSource):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:  # PySpark 4.0 refuses a known source; later versions replace it
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
