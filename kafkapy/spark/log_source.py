"""The PySpark data source `kafkapy-log`, which reads segment files without a broker.

The modules that a query needs are imported when they are used, as in kafkapy.spark.source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class KafkapyLogDataSource(DataSource):
    """The data source `kafkapy-log`, which reads records from log directories, topics, partitions or segment files.

    Rows have the columns of the source `kafkapy`. An invalid option raises BadOption. Files that are missing, damaged
    or not segments of a log raise OfflineError. Each message is one sentence.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkapy-log"

    @entry_point
    def schema(self) -> StructType:
        from kafkapy.spark.options.log_options import log_options
        from kafkapy.spark.schema import schema_of

        check_requirements()
        return schema_of(log_options(self.options).columns)

    @entry_point
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkapy.spark.log_reader import SegmentReader
        from kafkapy.spark.options.log_options import log_options
        from kafkapy.spark.schema import check_schema

        check_requirements()
        options = log_options(self.options)
        check_schema(schema, options.columns)
        return SegmentReader(options)

    @entry_point
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkapy.spark.options.given import BadOption

        raise BadOption("the source kafkapy-log supports batch queries only: for a stream, read a broker with kafkapy")
