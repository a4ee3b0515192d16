"""The PySpark data source `kafkapy-log`: segment files as rows, without a broker. What a query needs is imported when
it is needed, as in kafkapy.spark.source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafkapy.spark.plainly import plainly
from kafkapy.spark.requirements import check_requirements

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class KafkapyLogDataSource(DataSource):
    """The records of log directories, topics, partitions or single segments, in the columns of the source `kafkapy`.

    Wrong options raise BadOption, files that are no log, damaged or not to be had raise OfflineError; the text of each
    is a sentence.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkapy-log"

    @plainly
    def schema(self) -> StructType:
        from kafkapy.spark.options.log_options import log_options
        from kafkapy.spark.schema import schema_of

        check_requirements()
        return schema_of(log_options(self.options).columns)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkapy.spark.log_reader import SegmentReader
        from kafkapy.spark.options.log_options import log_options
        from kafkapy.spark.schema import check_schema

        check_requirements()
        options = log_options(self.options)
        check_schema(schema, options.columns)
        return SegmentReader(options)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkapy.spark.options.given import BadOption

        raise BadOption("the source kafkapy-log reads what the files hold now: for a stream read a broker with kafkapy")
