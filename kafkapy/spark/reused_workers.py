"""Saves Python processes that Spark reuses from work that PySpark repeats for each call and task.

A query calls Python four times and more: to find the schema, to plan, and in each task. After each, PySpark collects
garbage among the 80,000 objects of all imported modules: 20 ms of CPU. Before each, PySpark 4.0 invalidates the caches
of the import system. Python up to 3.12 then parses the directory of pyspark.zip again, which is on the path: 37 ms.
Most tasks take less.
"""

import gc
import os
import sys
from zipimport import zipimporter

SPARKS_OWN = "pyspark.zip", "py4j-"  # the beginnings of the names of Spark's zip files


def spare_next_call() -> None:
    """Make the next call of this process cheaper, if Spark reuses the process. Called at the end of each call.

    The objects that exist at the end of the first call are excluded from garbage collection. They are still freed by
    their reference counts; only cycles among them are not collected later, also those of users' code that has run in
    this process before.

    The importers of Spark's own zip files, which do not change, are forgotten. The next import that needs one
    constructs it from the directory that Python keeps.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    if not gc.get_freeze_count():
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and os.path.basename(finder.archive).startswith(SPARKS_OWN):
            sys.path_importer_cache.pop(path, None)
