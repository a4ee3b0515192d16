"""Checks partitions of Kafka 0.7: the checksum of every message, also of messages in compressed ones, and gaps between
segments."""

import time
from pathlib import Path

from kafkapy.log.offline.files_07 import Reader07, gap_in, segments_07
from kafkapy.record.kafka07 import CorruptMessage, messages_in
from kafkapy.tools.log.verify.report import Report

A_WRITE_S = 0.02  # long enough for a write to continue whose thread was preempted in the middle of it


def check_partition_07(directory: Path, report: Report) -> None:
    """Check all segments in a partition's directory, and report problems. Raises OSError."""
    segments = segments_07(directory)
    for segment in segments:
        check_segment_07(segment.path, report)
    gap = gap_in(segments)
    if gap is not None:
        report.add(directory, gap)


def check_segment_07(path: Path, report: Report) -> None:
    """Check a segment, and report problems. After an invalid message the check continues; an invalid length ends it.
    Raises OSError."""
    report.files += 1
    position: int | None = 0
    while position is not None:
        position = _check_from(position, path, report)


def _check_from(end: int, path: Path, report: Report) -> int | None:
    """Check the messages from position `end` on. If a broker is writing the last message, return its position, from
    which to check again; else None."""
    start = int(path.stem)
    with Reader07(path) as log:
        try:
            for message in log.messages(end):
                report.batches += 1
                try:
                    report.records += sum(1 for _ in messages_in(message))
                except CorruptMessage as error:
                    sentence = f"the message at position {message.position} is damaged: {error}"
                    report.add(path, sentence, position=message.position, offset=start + message.position)
                report.read(message.end - end)
                end = message.end
        except CorruptMessage as error:
            sentence = f"there is no message at position {error.position}: {error}; the rest of the file cannot be read"
            report.add(path, sentence, position=error.position, offset=start + error.position)
            return None
        if end < log.size:
            if _grows(path, log.size):
                return end
            sentence = f"{log.size - end} bytes at position {end} are no whole message"
            report.add(path, sentence, position=end, offset=start + end)
    return None


def _grows(path: Path, size: int) -> bool:
    """Return True if a broker is writing to the file: readers may see an append in part."""
    time.sleep(A_WRITE_S)
    return path.stat().st_size != size
