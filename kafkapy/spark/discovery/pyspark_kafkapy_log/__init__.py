"""The package through which Spark finds the source `kafkapy-log`; see the package `pyspark_kafkapy`."""

try:
    from kafkapy.spark.log_source import KafkapyLogDataSource as DefaultSource
except Exception as reason:
    import sys

    print(f"kafkapy: Spark cannot use the source 'kafkapy-log': {reason}", file=sys.stderr)
else:
    __all__ = ["DefaultSource"]
