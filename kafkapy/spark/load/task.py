"""A task of a load: reads a range of offsets of a partition, decodes the values, and writes rows to staged files.

No row passes through the JVM: Spark assigns ranges to workers, retries a range elsewhere when a worker is lost, and
returns the list of files. Files of a failed attempt are in no list.
"""

import collections
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from kafkapy.arrow.partition_reader import read_partition
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.errors import KafkaError
from kafkapy.spark.load.avro_schema import AvroValues
from kafkapy.spark.load.avro_values import AvroDecoder
from kafkapy.spark.load.columns import (
    REASON,
    by_date,
    columns_to_read,
    rejected_schema,
    row_schema,
    with_null_timestamps,
)
from kafkapy.spark.load.decoding import Decoder
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.files import DatedFiles, StagedFile
from kafkapy.spark.load.json_schema import JsonValues
from kafkapy.spark.load.json_values import JsonDecoder
from kafkapy.spark.load.settings import Settings

MOST_REASONS = 20  # reasons that a task counts separately
MORE_REASONS = "other reasons"


@dataclass(frozen=True)
class Piece:
    """A range of offsets of one partition to load: start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Written:
    """The result of a task that has loaded a Piece (a range of offsets).

    Attributes:
        rows: The number of rows.
        files: The staged files of rows.
        rejected: The staged files of values that did not match the schema.
        reasons: The number of these values by reason.
        lost: The number of offsets that were deleted after they were planned and before they were read.
    """

    rows: int
    files: list[StagedFile]
    rejected: list[StagedFile]
    reasons: dict[str, int]
    lost: int = 0

    def text(self) -> str:
        """Return this result as text (JSON), which Spark passes to the driver. `of` converts it back."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Written":
        """Return the result in a text that the method `text` has returned."""
        document = json.loads(text)
        for name in ("files", "rejected"):
            document[name] = [StagedFile.of(file) for file in document[name]]
        return cls(**document)


def decoder_of(settings: Settings) -> Decoder | None:
    """Return the decoder for values, or None if values stay bytes.

    Raises WrongOption or LoadError for an invalid schema.
    """
    if isinstance(settings.values, JsonValues):
        return JsonDecoder(settings.values.fields())
    if isinstance(settings.values, AvroValues):
        return AvroDecoder(settings.values)
    return None


def schema_of(settings: Settings) -> pa.Schema:
    """Return the schema of the rows that a load with these settings writes."""
    fields = None if settings.values is None else settings.values.fields()
    return row_schema(settings.prefix, settings.headers, fields)


def write_piece(piece: Piece, settings: Settings, directory: Path, *, accept_loss: bool = False) -> Written:
    """Read the records of a Piece, decode their values, write the rows to staged files, and return the result.

    Raises LoadError if the records cannot be read or the files cannot be written, or as `write_rows` does. With
    `accept_loss`, records that were deleted are left out and counted instead.
    """
    lost: list[int] = []
    try:
        with Cluster(settings.servers, timeout_s=settings.timeout_s, security=settings.security) as cluster:
            batches = _batches(cluster, piece, settings, lost if accept_loss else None)
            return replace(write_rows(piece.topic, batches, settings, directory), lost=sum(lost))
    except KafkaError as error:
        raise LoadError(f"{_name(piece)} could not be read: {error.message}") from error
    except (ClientError, ValueError) as error:
        raise LoadError(f"{_name(piece)} could not be read: {error}") from error
    except OSError as error:
        raise LoadError(
            f"{os.uname().nodename} could not write to {directory}: {error.strerror or error}; "
            "every worker needs access to the directory, and there has to be space"
        ) from error


def _batches(cluster: Cluster, piece: Piece, settings: Settings, lost: list[int] | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a Piece.

    If the next records were deleted, append the number of their offsets to `lost` and continue after them. If `lost` is
    None, raise OffsetOutOfRange.
    """
    position = piece.start
    while position < piece.end:
        try:
            yield from read_partition(
                cluster,
                piece.topic,
                piece.partition,
                position,
                piece.end,
                columns=columns_to_read(settings.headers),
                include_headers=settings.headers,
                isolation=settings.isolation,
                timeout_s=settings.timeout_s,
            )
            return
        except OffsetOutOfRange as error:
            if lost is None or error.offset >= error.earliest:  # `earliest` is -1 if it is not known
                raise
            position = min(error.earliest, piece.end)
            lost.append(position - error.offset)


def write_rows(topic: str, batches: Iterable[pa.RecordBatch], settings: Settings, directory: Path) -> Written:
    """Decode the values in record batches, write the rows to staged files, and return the result.

    The batches have the columns of `columns_to_read`. Values that do not match the schema are written to separate
    files or, with the setting strict, raise LoadError.
    """
    decoder = decoder_of(settings)
    prefix = settings.prefix
    good = DatedFiles(directory, topic, schema_of(settings), prefix, settings.file_bytes)
    aside = DatedFiles(directory, topic, rejected_schema(prefix), prefix, settings.file_bytes)
    reasons: collections.Counter[str] = collections.Counter()
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        at = rows.schema.get_field_index("timestamp")
        stamps = with_null_timestamps(batch.column("timestamp"))
        rows = rows.set_column(at, "timestamp", stamps)
        if decoder is not None:
            rows, bad = _decoded(rows, decoder, settings)
            _add(aside, rows=bad, timestamps=prefix + "timestamp")
            for reason in bad[REASON].to_pylist():
                reasons[reason if reason in reasons or len(reasons) < MOST_REASONS else MORE_REASONS] += 1
        else:
            rows = rows.rename_columns([prefix + name for name in rows.column_names])
        _add(good, rows=rows, timestamps=prefix + "timestamp")
    files = good.close()
    return Written(sum(file.rows for file in files), files, aside.close(), dict(reasons))


def _decoded(rows: pa.Table, decoder: Decoder, settings: Settings) -> tuple[pa.Table, pa.Table]:
    """Return two tables: the rows with decoded values, and the rejected rows with the reasons.

    With the setting strict, raises LoadError if there is a rejected row.
    """
    decoded = decoder.decode(rows["value"].combine_chunks())
    record = [name for name in rows.column_names if name != "value"]
    if decoded.bad and settings.strict:
        place, reason = decoded.bad[0]
        topic_at = f"partition {rows['partition'][place]} offset {rows['offset'][place]}"
        raise LoadError(f"the value at {topic_at} does not fit the schema: {reason}; nothing of this batch is loaded")
    bad = rows.take(pa.array([place for place, _ in decoded.bad], pa.int64()))
    bad = bad.select([*(name for name in record if name != "headers"), "value"])
    bad = bad.rename_columns([*(settings.prefix + name for name in bad.column_names[:-1]), "value"])
    bad = bad.append_column(REASON, pa.array([reason for _, reason in decoded.bad], pa.string()))
    good = rows.select(record)
    if decoded.bad:
        fits = [True] * len(rows)
        for place, _ in decoded.bad:
            fits[place] = False
        good = good.filter(pa.array(fits))
    good = good.rename_columns([settings.prefix + name for name in good.column_names])
    for name in decoded.rows.column_names:
        good = good.append_column(name, decoded.rows[name])
    return good, bad


def _add(files: DatedFiles, *, rows: pa.Table, timestamps: str) -> None:
    """Add rows to the files of their dates. `timestamps` is the name of the column that has the timestamps."""
    if not len(rows):
        return
    for date, mask in by_date(rows[timestamps].combine_chunks()):
        files.add(date, rows if mask is None else rows.filter(mask))


def _name(piece: Piece) -> str:
    """Return the partition and the offsets of a Piece as text, for messages."""
    return f"{piece.topic}-{piece.partition} from offset {piece.start} to {piece.end}"


Work = Callable[[str], str]
Runner = Callable[[Work, Sequence[str]], Iterator[str]]
