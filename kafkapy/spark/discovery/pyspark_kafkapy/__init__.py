"""The package through which Spark finds the source `kafkapy`.

Spark imports each top-level package named `pyspark_*` and registers its `DefaultSource`. The build puts this folder at
the top level. If one of these packages fails to import, Spark registers none of them. So this package catches the
errors of its imports and prints them to standard error.
"""

try:
    from kafkapy.spark.source import KafkapyDataSource as DefaultSource
except Exception as reason:
    import sys

    print(f"kafkapy: Spark cannot use the source 'kafkapy': {reason}", file=sys.stderr)
else:
    __all__ = ["DefaultSource"]
