"""Loads topics into Parquet files, exactly once. `kafkapy spark load` calls this.

    from kafkapy.spark.load import load

    settings = Settings("127.0.0.1:9092", values=JsonValues("carrier STRING, dep_delay INT"))
    summary = load(["flights"], "landed", settings, spark=spark)

`spark` may be any session: local, of a cluster or of Spark Connect. All workers and this process have to see the
directory under the same path. Without a session, this process does all the work, one range of offsets after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.client.cluster import Cluster
from kafkapy.spark.load.avro_schema import ANY_ID, AvroValues
from kafkapy.spark.load.errors import DirectoryInUse, LoadError, WrongOption
from kafkapy.spark.load.json_schema import JsonValues
from kafkapy.spark.load.run import Load, PartitionSummary, Progress, Summary
from kafkapy.spark.load.runners import here, on_spark, parallelism
from kafkapy.spark.load.settings import Settings
from kafkapy.spark.load.state import State
from kafkapy.spark.load.task import decoder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ANY_ID",
    "AvroValues",
    "DirectoryInUse",
    "JsonValues",
    "LoadError",
    "PartitionSummary",
    "Progress",
    "Settings",
    "Summary",
    "WrongOption",
    "check_call",
    "load",
]


def load(
    topics: Sequence[str],
    directory: str | Path,
    settings: Settings,
    *,
    spark: SparkSession | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
    again: bool = False,
    follow_s: float | None = None,
    stopped: threading.Event | None = None,
    accept_loss: bool = False,
    compact_files: int | None = 16,
    state: str | Path | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Load the records of the topics that `directory` does not have yet, as Parquet files, and return a summary.

    Args:
        start_ms, end_ms: Load only records between these times: in each partition from the first record at or after
            the start to the first at or after the end. Without a start, continue after the last loaded offset.
        again: Also load records that the directory already has, and replace their rows.
        follow_s: Continue, looking for new records at this interval. None: load only the records that exist now.
        stopped: An event that ends the load after the current batch.
        accept_loss: Continue if records were deleted before they were loaded.
        compact_files: Merge the small files of a directory if there are at least this many. None: do not merge.
        state: The directory of the state, on the same file system. None: next to the loaded directory, as DIR.kafkapy.

    Raises LoadError, its subclass WrongOption for an invalid call, and ClientError and KafkaError of the brokers.
    """
    check_call(topics, settings, start_ms=start_ms, end_ms=end_ms, again=again, follow_s=follow_s)
    with (
        Cluster(settings.servers, timeout_s=settings.timeout_s, security=settings.security) as cluster,
        _state(Path(directory), None if state is None else Path(state)) as held,
    ):
        run = Load(
            list(dict.fromkeys(topics)),
            held,
            cluster,
            here if spark is None else on_spark(spark),
            settings,
            tasks=1 if spark is None else parallelism(spark),
            accept_loss=accept_loss,
            compact_files=compact_files,
            stopped=stopped,
            on_progress=on_progress,
        )
        if again:
            run.again(start_ms, end_ms)
        elif follow_s is None:
            run.once(start_ms, end_ms)
        else:
            run.follow(follow_s, start_ms)
        run.compact()
        return run.finish()


def _state(directory: Path, home: Path | None) -> State:
    """Return the opened State of `directory`. Raise LoadError if the state's directories or files cannot be used.

    `home` is the directory that the state is stored in, or None for the default.
    """
    try:
        return State(directory, home)
    except OSError as error:
        raise LoadError(
            f"{directory} cannot be loaded into: {error.filename}: {error.strerror}; name a directory that can be "
            "created and written to"
        ) from error


def check_call(
    topics: Sequence[str],
    settings: Settings,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    again: bool = False,
    follow_s: float | None = None,
) -> None:
    """Raise WrongOption or LoadError if the arguments of `load` are invalid. Uses neither a broker nor Spark."""
    if not topics:
        raise WrongOption("no topic is named")
    if again and (start_ms is None or follow_s is not None):
        raise WrongOption("loading again needs a start and cannot follow: use --again with --from, not with --follow")
    if follow_s is not None and end_ms is not None:
        raise WrongOption("--follow loads until it is stopped, so it excludes --until; give one of them")
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise WrongOption("--from is not before --until, so there is nothing between them")
    decoder_of(settings)
