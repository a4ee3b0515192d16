"""A driver that streams numbers 0, 1, 2, ... into a topic exactly once: `python -m tests.faults.sink_job ARGUMENTS`, a
JSON object. A query that fails is started again in the same session, as an operator would."""

import json
import os
import sys
from pathlib import Path
from typing import Any

MOST_FAILURES = 50


def main() -> None:
    from perf.spark_driver import session
    from tests.faults.dying_sink import DyingSource
    from tests.harness.spark import settings

    wanted = json.loads(sys.argv[1])
    directory = Path(wanted["directory"])
    scratch = directory / f"driver-{os.getpid()}"
    wishes = settings(scratch, wanted["master"])
    wishes["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1"  # the JVM does not run long
    spark = session(wishes)
    spark.dataSource.register(DyingSource)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    (directory / "driver.new").write_text(json.dumps([jvm, os.getpid()]))
    (directory / "driver.new").rename(directory / "driver")
    print("ready", jvm, flush=True)
    for _ in range(MOST_FAILURES):
        query = start(spark, wanted)
        try:
            query.awaitTermination()
            print("done", flush=True)
            return
        except Exception as error:
            print("failed", str(error)[:20000].replace("\n", " | "), flush=True)
    raise RuntimeError("the query fails again and again")


def start(spark: Any, wanted: dict[str, Any]) -> Any:
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", wanted["rows"])
        .option("numPartitions", wanted["tasks"])
        .option("startTimestamp", 0)
        .load()
        .selectExpr("cast(value as string) as value", "cast(value as string) as key")
    )
    writer = (
        numbers.writeStream.format("dying")
        .option("moments", wanted["directory"])
        .option("kafka.bootstrap.servers", wanted["bootstrap"])
        .option("topic", wanted["topic"])
        .option("delivery", "exactly-once")
        .option("kafka.batch.size", "1000")
        .option("checkpointLocation", wanted["checkpoint"])
    )
    return (writer.trigger(availableNow=True) if wanted["last"] else writer.trigger(processingTime="0 seconds")).start()


if __name__ == "__main__":
    main()
