"""Topics as DataFrames: the PySpark data source `kafkapy`, batch and streaming.

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    spark.read.format("kafkapy").options(**options).load()

Spark finds it by itself where kafkapy is installed with `pip install "kafkapy[spark]"` (the package `pyspark_kafkapy`
is for that); `register` is for where it cannot, such as a session on another machine's Spark Connect server.

Options, their names, defaults and meanings are those of Spark's own Kafka source: docs/spark.md.
"""

from typing import Any

from kafkapy.spark.requirements import check_requirements, check_workers

__all__ = ["check_requirements", "register"]


def register(spark: Any) -> None:
    """Makes `format("kafkapy")` and `format("kafkapy-log")` known to one session, if they are not; raises
    MissingRequirement with what to install."""
    check_requirements()
    if not type(spark).__module__.startswith("pyspark.sql.connect"):  # whose workers are the server's
        check_workers()
    from pyspark.errors import PySparkException

    from kafkapy.spark.log_source import KafkapyLogDataSource
    from kafkapy.spark.source import KafkapyDataSource

    for source in (KafkapyDataSource, KafkapyLogDataSource):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:  # PySpark 4.0, where Spark has found it by itself; later ones replace it
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
