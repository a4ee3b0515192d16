"""Down-conversion: convert fetched records for clients that do not know the stored message format.

Source: KafkaApis.maybeConvertFetchedData.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.network.pieces import MOST_HELD, Pieces, held
from kafkapy.record.file_region import FileRegion
from kafkapy.replica.fetch import FetchRead
from kafkapy.replica.hosted_partition import HostedPartition

# The first batch of each partition is converted before anything is sent, because the response needs its size. Converted
# batches are kept until they are sent, up to so many bytes for each response.
MOST_KEPT = 1 << 20


class OldClientReads:
    """The FetchReads of a Fetch request (`reads` of `wanted`, see FetchPlan), down-converted to message format `magic`.

    Records in a newer format become Pieces, which are converted while they are sent. A topic that does not allow
    down-conversion (message.downconversion.enable) gets UNSUPPORTED_VERSION: as in Kafka if the topic's configured
    format is newer, and also if a record has a newer format from before the configuration was changed. A region without
    a whole batch in a newer format is sent as it is. So a first batch that is cut off is sent cut off, where Kafka's
    response is empty.
    """

    def __init__(
        self, wanted: Sequence[tuple[HostedPartition | KafkaError, Any]], reads: Sequence[FetchRead], magic: int
    ) -> None:
        self.reads = list(reads)
        self._wanted = wanted
        self._magic = magic
        self._done = 0
        self._kept = 0

    def convert_some(self, until: Callable[[], bool]) -> bool:
        """Convert the records of the next partitions until all partitions are done or `until()` returns True.

        Returns True if all partitions are done. May wait for the disk.
        """
        while self._done < len(self.reads):
            partition, asked = self._wanted[self._done]
            read = self.reads[self._done]
            if isinstance(partition, HostedPartition):
                most = MOST_KEPT - self._kept if held.total < MOST_HELD else 0
                try:
                    self._kept += _convert(partition, asked.fetch_offset, read, self._magic, most)
                except KafkaError as error:
                    self.reads[self._done] = FetchRead(error.code)
            self._done += 1
            if until():
                break
        return self._done == len(self.reads)


def _convert(partition: HostedPartition, offset: int, read: FetchRead, magic: int, most_kept: int) -> int:
    """Replace `read.records` by Pieces if the records have to be converted to the message format `magic`.

    Returns how many bytes of converted records are kept in memory, at most `most_kept`. Raises KafkaError
    UNSUPPORTED_VERSION if the topic does not allow down-conversion.
    """
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
