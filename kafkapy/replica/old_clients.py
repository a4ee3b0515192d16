"""What was read for a client that does not know the stored message format (KafkaApis.maybeConvertFetchedData)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.network.pieces import MOST_HELD, Pieces, held
from kafkapy.record.file_region import FileRegion
from kafkapy.replica.fetch import FetchRead
from kafkapy.replica.partition import Partition

# The first batch of each partition is converted before anything is sent, for its size; so many bytes are kept for it.
MOST_KEPT = 1 << 20


class OldClientReads:
    """`reads` of what was `wanted` (see FetchPlan) for a client that knows formats up to `magic`.

    What is stored in a newer format becomes Pieces, which are converted while they are sent. A topic that does not
    allow it (message.downconversion.enable) answers UNSUPPORTED_VERSION: as in Kafka if its setting has a newer
    format, and also if a record has one that was stored before the setting was what it is. What has no whole entry in a
    newer format goes out as it is: so a first batch that is cut comes cut, where Kafka's answer is empty.
    """

    def __init__(
        self, wanted: Sequence[tuple[Partition | KafkaError, Any]], reads: Sequence[FetchRead], magic: int
    ) -> None:
        self.reads = list(reads)
        self._wanted = wanted
        self._magic = magic
        self._done = 0
        self._kept = 0

    def convert_some(self, until: Callable[[], bool]) -> bool:
        """Goes on partition by partition until all is done, which is the answer, or `until()`. May wait."""
        while self._done < len(self.reads):
            partition, asked = self._wanted[self._done]
            read = self.reads[self._done]
            if isinstance(partition, Partition):
                most = MOST_KEPT - self._kept if held.total < MOST_HELD else 0
                try:
                    self._kept += _convert(partition, asked.fetch_offset, read, self._magic, most)
                except KafkaError as error:
                    self.reads[self._done] = FetchRead(error.code)
            self._done += 1
            if until():
                break
        return self._done == len(self.reads)


def _convert(partition: Partition, offset: int, read: FetchRead, magic: int, most_kept: int) -> int:
    """Replaces the records where they have to be converted; how many bytes of the new ones are in memory now."""
    config = partition.log.config
    allowed = config.message_downconversion_enable
    refusal = KafkaError(
        Errors.UNSUPPORTED_VERSION, f"{partition} has a newer message format, and message.downconversion.enable=false"
    )
    if not allowed and config.record_magic > magic:
        raise refusal
    if not isinstance(read.records, FileRegion):
        return 0
    source = read.records.handle
    conversion = partition.log.down_convert(read.records, magic, offset)
    if conversion is None:
        return 0
    if not allowed:
        raise refusal
    first = conversion.take_first(most_kept)
    read.records = Pieces(conversion.length, conversion.make, first, source)
    return len(first)
