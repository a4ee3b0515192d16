"""Topics to Parquet, exactly once: the function behind `kafkapy spark load`.

    from kafkapy.spark.load import load

    settings = Settings("127.0.0.1:9092", values=JsonValues("carrier STRING, dep_delay INT"))
    summary = load(["flights"], "landed", settings, spark=spark)

`spark` is any session, local, of a cluster or of Spark Connect; every worker, and this process, have to see the
directory under the same path. Without a session the work is done here, one piece after the other.
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
    """Brings into `directory` what the topics have and it has not, and tells what was done.

    Args:
        start_ms, end_ms: only what lies between these times: from the first record at or after the one to the first at
            or after the other, by partition. Without a start a topic goes on where the directory is.
        again: load all of that, also what the directory has, whose rows are replaced.
        follow_s: go on, looking every so many seconds; None: load what is there now.
        stopped: when it is set, the batch at hand is the last one.
        accept_loss: go on where records are gone that were still to be loaded.
        compact_files: so many small files in a directory become one; None: they stay.
        state: where the state is kept, on the same file system; None: beside the directory, as DIR.kafkapy.

    Raises LoadError with what is wrong, WrongOption where it is the call, ClientError and KafkaError of the brokers.
    """
    check_call(topics, settings, start_ms=start_ms, end_ms=end_ms, again=again, follow_s=follow_s)
    with (
        Cluster(settings.servers, timeout_s=settings.timeout_s) as cluster,
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
    try:
        return State(directory, home)
    except OSError as error:
        raise LoadError(
            f"{directory} cannot be loaded into: {error.filename}: {error.strerror}; name a directory that can be made "
            "and written to"
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
    """Raises WrongOption for what `load` would not do, without a broker and without Spark."""
    if not topics:
        raise WrongOption("no topic is named")
    if again and (start_ms is None or follow_s is not None):
        raise WrongOption(
            "to load again needs a time to begin with and ends: --again goes with --from, not with --follow"
        )
    if follow_s is not None and end_ms is not None:
        raise WrongOption("--follow goes on for ever, and --until is an end; give one of them")
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise WrongOption("--from is not before --until, so that there is nothing between them")
    decoder_of(settings)
