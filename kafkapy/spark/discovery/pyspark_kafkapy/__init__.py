"""Where Spark finds the source `kafkapy`: it imports each top-level package `pyspark_*` and takes its `DefaultSource`.

The build maps this folder to the top level. Spark imports all such packages in one go, and one that fails would hide
everybody's sources; so this one never fails, and says on standard error what is the matter.
"""

try:
    from kafkapy.spark.source import KafkapyDataSource as DefaultSource
except Exception as reason:
    import sys

    print(f"kafkapy: Spark cannot have the source 'kafkapy': {reason}", file=sys.stderr)
else:
    __all__ = ["DefaultSource"]
