"""Where Spark finds the source `kafkapy-log`; as `pyspark_kafkapy` beside it, which says why it never fails."""

try:
    from kafkapy.spark.log_source import KafkapyLogDataSource as DefaultSource
except Exception as reason:
    import sys

    print(f"kafkapy: Spark cannot have the source 'kafkapy-log': {reason}", file=sys.stderr)
else:
    __all__ = ["DefaultSource"]
