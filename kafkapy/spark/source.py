"""The PySpark data source `kafkapy`.

The modules that a query needs are imported when they are used, because Spark imports this module to list the sources,
and in every process that it starts for a source.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class KafkapyDataSource(DataSource):
    """The data source `kafkapy`, which reads the records of topics as rows and writes rows as records.

    Rows have the columns key, value, topic, partition, offset, timestamp, timestampType and, optionally, headers. An
    invalid option raises BadOption, a broker that cannot be reached ClientError, and an error response of a broker
    KafkaError. Each message is one sentence.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkapy"

    @entry_point
    def schema(self) -> StructType:
        from kafkapy.spark.options.source_options import source_options
        from kafkapy.spark.schema import schema_of

        check_requirements()
        return schema_of(source_options(self.options).columns)

    @entry_point
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkapy.spark.options.source_options import source_options
        from kafkapy.spark.reading.batch_reader import BatchReader
        from kafkapy.spark.schema import check_schema

        check_requirements()
        options = source_options(self.options)
        options.check_batch()
        check_schema(schema, options.columns)
        return BatchReader(options)

    @entry_point
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkapy.spark.options.source_options import source_options
        from kafkapy.spark.schema import check_schema

        check_requirements()
        options = source_options(self.options)
        options.check_stream()
        check_schema(schema, options.columns)
        if find_spec("pyspark.sql.streaming.datasource") is None:  # PySpark before 4.2
            from kafkapy.spark.reading.plain_stream import PlainStreamReader

            return PlainStreamReader(options)
        from kafkapy.spark.reading.limited_stream import LimitedStreamReader

        return LimitedStreamReader(options)

    @entry_point
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkapy.spark.sink.writers import batch_writer

        check_requirements()
        return batch_writer(self.options, schema, overwrite)

    @entry_point
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kafkapy.spark.sink.writers import stream_writer

        check_requirements()
        return stream_writer(self.options, schema, overwrite)
