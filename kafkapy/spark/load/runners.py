"""Runners, which execute the tasks of a load: with the workers of a Spark session, or in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.task import Runner, Work

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def here(work: Work, texts: Sequence[str]) -> Iterator[str]:
    """Yield the result of `work` for each text, one after the other in this process.

    This is for tests, and for small loads without a JVM.
    """
    return map(work, texts)


def on_spark(spark: SparkSession) -> Runner:
    """Return a Runner that executes `work` in one Spark task for each text, in a classic or Spark Connect session.

    The Runner raises LoadError if the work raises LoadError in a worker, or if the Spark job fails.
    """

    def run(work: Work, texts: Sequence[str]) -> Iterator[str]:
        listed = list(texts)
        if not listed:
            return iter(())
        numbers = spark.range(0, len(listed), 1, len(listed))
        try:
            rows = numbers.mapInArrow(_Mapped(work, listed), "number bigint, failed boolean, text string").collect()
        except Exception as error:  # of PySpark, Py4J or gRPC: a worker was lost, or the session failed
            raise LoadError(f"the Spark job failed: {_message(error)}") from error
        for row in sorted(rows, key=lambda row: (not row.failed, row.number)):
            if row.failed:
                raise LoadError(row.text)
        return iter([row.text for row in sorted(rows, key=lambda row: int(row.number))])

    return run


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs in parallel.

    Spark Connect does not report that number, so the partitions are counted in which Spark splits a range.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # PySparkNotImplementedError or PySparkAttributeError, depending on the version
        from pyspark.sql.functions import spark_partition_id

        return int(spark.range(1 << 16).select(spark_partition_id()).distinct().count())


def _message(error: Exception) -> str:
    """Return the relevant line of a long error message: the exception of a Python worker, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        raised = [line for line in lines if line.split(":")[0].isidentifier() and ": " in line]
        message = raised[-1] if raised else lines[-1]
        if message.startswith("ModuleNotFoundError") and "kafkapy" in message:
            message += "; the workers' Python needs kafkapy, and PYSPARK_PYTHON says which Python that is"
        return message
    return lines[0] if lines else type(error).__name__


class _Mapped:
    """The function that Spark runs in workers: it executes the work for the text that each input row names by its
    number.

    A LoadError becomes an output row with `failed` set. After other errors, Spark retries the task.
    """

    def __init__(self, work: Work, texts: list[str]) -> None:
        self._work, self._texts = work, texts

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema([("number", pa.int64()), ("failed", pa.bool_()), ("text", pa.string())])
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row: dict[str, Any] = {"number": number, "failed": False}
                try:
                    row["text"] = self._work(self._texts[number])
                except LoadError as error:
                    row |= {"failed": True, "text": str(error)}
                yield pa.RecordBatch.from_pylist([row], schema=schema)
