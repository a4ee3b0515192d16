"""Counts partitions of Kafka 0.7, whose messages have neither keys nor timestamps nor consecutive offsets.

The messages are counted as messages of format 0; then the figures that depend on 0.7's own layout are replaced.
"""

from collections.abc import Callable
from itertools import repeat

from kafkapy._ext.log_tally import LogTally
from kafkapy.log.offline.files_07 import Reader07
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.record_source import reading
from kafkapy.record.columns import decompress_records
from kafkapy.record.compression import NAMES
from kafkapy.record.kafka07 import HEADERS, LENGTH, CorruptMessage, Message, messages_in
from kafkapy.record.legacy import build_set
from kafkapy.tools.log.stats.totals import Stats, fill

SIZES = 33  # elements of a histogram, as in ext/log_tally
FORMAT = "0.7 magic {}"
OVERHEAD = 26  # bytes of a message of format 0 without a key, besides its value


def gather_07(place: Place, key_memory: int, progress: Callable[[int], object]) -> Stats:
    """Count the content of a partition of Kafka 0.7. A stored message, compressed or not, counts as a batch. Raises
    ToolError for a file that cannot be read."""
    tally = LogTally(decompress_records, key_memory)
    stats = Stats(place.name)
    own = _Own()
    done = 0
    for segment in place.segments:
        with reading(segment), Reader07(segment.path) as reader:
            end = 0
            try:
                for message in reader.messages():
                    inner = list(messages_in(message))
                    offset = segment.base_offset + message.position
                    tally.feed(build_set(((-1, None, one.payload) for one in inner), 0, offsets=repeat(offset)))
                    own.add(message, inner)
                    end = message.end
                    progress(done + end)
                if end < reader.size:
                    left = f"no whole message from position {end} on: {reader.size - end} bytes are left over"
                    stats.damage.append(f"{segment.path} has {left}.")
            except CorruptMessage as error:
                where = f"the message at position {error.position} has {error}"
                stats.damage.append(f"{segment.path} is damaged: {where}.")
        done += segment.size
    fill(stats, place, tally)
    own.replace(stats)
    return stats


class _Own:
    """Figures for Kafka 0.7's own message layout. They replace the figures that were counted for format 0."""

    def __init__(self) -> None:
        self.codecs: dict[str, dict[str, int]] = {}
        self.formats: dict[str, dict[str, int]] = {}
        self.batch_bytes = [0] * SIZES
        self.batch_records = [0] * SIZES
        self.largest = 0

    def add(self, message: Message, inner: list[Message]) -> None:
        count = len(inner)
        packed = len(message.payload) if message.codec else message.size
        figures = {"batches": 1, "records": count, "bytes": message.size}
        more = {"packed": packed, "unpacked": sum(one.size for one in inner)}
        for sums, name, new in (
            (self.codecs, NAMES[message.codec], figures | more),
            (self.formats, FORMAT.format(message.magic), figures),
        ):
            before = sums.get(name, {})
            sums[name] = {key: before.get(key, 0) + figure for key, figure in new.items()}
        self.batch_bytes[message.size.bit_length()] += 1
        self.batch_records[count.bit_length()] += 1
        self.largest = max(self.largest, message.size)

    def replace(self, stats: Stats) -> None:
        counts = stats.counts
        stats.codecs, stats.formats = self.codecs, self.formats
        stats.batch_bytes, stats.batch_records = self.batch_bytes, self.batch_records
        stats.gaps = []
        records = counts["records"]
        counts |= {
            "batches": sum(one["batches"] for one in self.codecs.values()),
            "bytes": sum(one["bytes"] for one in self.codecs.values()),
            "record_bytes": counts["value_bytes"] + records * (LENGTH + HEADERS[1]),
            "keyless_bytes": counts["value_bytes"] + records * (LENGTH + HEADERS[1]),
            "largest_batch": self.largest,
            "largest_record": max(0, counts["largest_record"] - OVERHEAD + LENGTH + HEADERS[1]) if records else 0,
            "gaps": 0,
            "missing": 0,
            "backward": 0,
        }
