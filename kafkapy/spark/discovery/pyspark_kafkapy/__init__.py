"""The entry point for Spark, which imports each top-level package `pyspark_*` and registers its `DefaultSource`.

The build maps this folder to the top level. If one such package fails to import, Spark registers none of them. So this
one never fails; it prints the reason to standard error.
"""

try:
    from kafkapy.spark.source import KafkapyDataSource as DefaultSource
except Exception as reason:
    import sys

    print(f"kafkapy: Spark cannot use the source 'kafkapy': {reason}", file=sys.stderr)
else:
    __all__ = ["DefaultSource"]
