"""The dump of the small text files of a log directory: checkpoints, `partition.metadata`, `meta.properties`.

Kafka's tool does not dump these files; the lines are in its style. Errors come from the broker's own parsers.
"""

import json
from collections.abc import Callable
from pathlib import Path

from kafkapy.log import leader_epochs
from kafkapy.log.cleaner import offsets as cleaner_offsets
from kafkapy.log.directories import checkpoints, clean_shutdown, meta_properties, partition_metadata
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.dump.options import Output

OFFSET_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_START_OFFSETS,
    cleaner_offsets.NAME,
)


def dump_checkpoint(path: Path, out: Output) -> None:
    """Print the content of a small text file, whose name must be in DUMPS. Raises ToolError for an invalid file,
    OSError."""
    try:
        DUMPS[path.name](path, path.read_bytes(), out)
    except ValueError as error:  # raised by the broker's parsers
        raise ToolError(f"{str(error).rstrip('.')}.") from error


def _offsets(path: Path, data: bytes, out: Output) -> None:
    lines = checkpoints.parse_lines(data, str(path))
    out.text(f"version: 0 entries: {len(lines)}")
    for line in lines:
        topic, _, rest = line.partition(" ")
        partition, offset = checkpoints.numbers(rest, 2, str(path))
        out.either(
            f"topic: {topic} partition: {partition} offset: {offset}",
            {"type": "checkpoint", "file": path.name, "topic": topic, "partition": partition, "offset": offset},
        )


def _leader_epochs(path: Path, data: bytes, out: Output) -> None:
    lines = checkpoints.parse_lines(data, str(path))
    out.text(f"version: 0 entries: {len(lines)}")
    for line in lines:
        epoch, start = checkpoints.numbers(line, 2, str(path))
        out.either(
            f"leaderEpoch: {epoch} startOffset: {start}",
            {"type": "leaderEpoch", "file": path.name, "leaderEpoch": epoch, "startOffset": start},
        )


def _partition_metadata(path: Path, data: bytes, out: Output) -> None:
    topic_id = partition_metadata.parse_metadata(data, str(path))
    text = partition_metadata.format_metadata(topic_id).decode().rpartition(" ")[2]
    out.either(
        f"version: 0 topicId: {text}",
        {"type": "partitionMetadata", "file": path.name, "version": 0, "topicId": text},
    )


def _meta_properties(path: Path, data: bytes, out: Output) -> None:
    """Print all keys of meta.properties, also unknown ones: a broker in KRaft mode writes more keys than this
    broker."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    pairs = dict(line.partition("=")[::2] for line in lines if line and line[0] not in "#!")
    if "version" not in pairs:
        raise ToolError(f"{path} has no version: it is not the meta.properties of a log directory.")
    words = [f"{key}: {value}" for key, value in pairs.items()]
    out.either(" ".join(words), {"type": "metaProperties", "file": path.name, "properties": pairs})


def _clean_shutdown(path: Path, data: bytes, out: Output) -> None:
    """Print the marker file of a clean shutdown. It is empty up to Kafka 2.x, and has the broker epoch as JSON in later
    versions."""
    content = json.loads(data) if data.strip() else {}
    epoch = content.get("brokerEpoch")
    line = "stopped cleanly" if epoch is None else f"stopped cleanly, broker epoch: {epoch}"
    out.either(line, {"type": "cleanShutdown", "file": path.name, "brokerEpoch": epoch})


DUMPS: dict[str, Callable[[Path, bytes, Output], None]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _offsets),
    leader_epochs.NAME: _leader_epochs,
    partition_metadata.NAME: _partition_metadata,
    meta_properties.NAME: _meta_properties,
    clean_shutdown.NAME: _clean_shutdown,
}
