"""Encoded requests that are sent again and again, and the positions of the fields that are read from their responses.

Several of these requests differ only in a number, such as the offset to fetch from, which is written into the encoded
request. All responses without an error have the same length, so they can be counted by their bytes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence

from kafkapy.protocol.apis import FETCH, OFFSET_COMMIT, PRODUCE
from kafkapy.protocol.headers import request_frame, response_frame
from kafkapy.record.batch import build

PRODUCE_VERSIONS = 3, 9  # 3 is the first one with batches of format 2
FETCH_VERSIONS = 4, 11  # 4 is the first one with batches of format 2; from 13 on there are topic ids
COMMIT_VERSIONS = 2, 8
ACKS_ALL = -1
FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes of the Java consumer, fetch.message.max.bytes of librdkafka
MAX_WAIT_MS = 500

_MARK = 0x5A3C  # looked for in an encoded message, to find the place of a field
_LONG_MARK = 0x1122334455667788
_INT16, _INT64 = struct.Struct(">h"), struct.Struct(">q")


class FetchFailed(RuntimeError):
    """A Fetch response with an error.

    Attributes:
        code: The error code; 0 if the response has aborted transactions, or another length than expected.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def batch(values: Sequence[bytes], codec: int = 0, keys: Iterable[bytes | None] | None = None) -> bytes:
    """Return one record batch v2 of `values`, all with the current time as timestamp, without keys or with `keys`."""
    now = int(time.time() * 1000)
    each = [None] * len(values) if keys is None else keys
    return build([(now, key, value, []) for key, value in zip(each, values, strict=True)], codec=codec)


def produce(topic: str, records: bytes, acks: int, index: int = 0, *, version: int, client: str) -> bytes:
    """Return a Produce request that sends `records` to the partition `index` of a topic."""
    request = PRODUCE.Request
    partition = request.TopicData.PartitionData(index=index, records=records)
    message = request(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[request.TopicData(name=topic, partition_data=[partition])],
    )
    return request_frame(PRODUCE, version, 1, client, message)


class ProduceReply:
    """The layout of a Produce response without an error, for one partition of a topic."""

    def __init__(self, topic: str, version: int) -> None:
        response = PRODUCE.Response
        partition = response.Responses.PartitionResponses(index=0, error_code=_MARK, base_offset=0)
        message = response(responses=[response.Responses(name=topic, partition_responses=[partition])])
        frame = response_frame(PRODUCE, version, 1, message)
        self.size = len(frame)
        """The bytes of the response, with the size field."""
        self._error_at = frame.index(_INT16.pack(_MARK))
        pad, rest = self._error_at - 4, self.size - self._error_at - 2
        self._fields = struct.Struct(f">i{pad}xh{rest}x")
        self._good = {(self.size - 4, 0)}

    def are_good(self, replies: memoryview) -> bool:
        """Return True if `replies`, which has whole responses of this size, one or more, has no error."""
        return set(self._fields.iter_unpack(replies)) == self._good

    def base_offset(self, reply: bytes | memoryview) -> int:
        """Return the offset of the first record that the request has stored."""
        return int(_INT64.unpack_from(reply, self._error_at + 2)[0])


class FetchFrame:
    """A Fetch request for one partition from any offset, and the position of the records in its response."""

    def __init__(
        self,
        topic: str,
        max_bytes: int = FETCH_BYTES,
        partition: int = 0,
        *,
        version: int,
        client: str,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        request = FETCH.Request
        asked = request.Topics.Partitions(partition=partition, fetch_offset=_LONG_MARK, partition_max_bytes=max_bytes)
        message = request(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max(max_bytes, 50 << 20),
            session_id=0,
            session_epoch=-1,
            topics=[request.Topics(topic=topic, partitions=[asked])],
        )
        self._frame = bytearray(request_frame(FETCH, version, 1, client, message))
        self._offset_at = self._frame.index(_INT64.pack(_LONG_MARK))
        empty = self._empty_response(topic, version)
        self._error_at = empty.index(_INT16.pack(_MARK))
        self.head = len(empty)
        """Bytes of a response before the records, with the size field; the last four are the length of the records."""
        fields = struct.Struct(f">i{self._error_at - 4}xh{self.head - self._error_at - 6}xi")
        self._fields = fields.unpack_from

    def at(self, offset: int) -> bytearray:
        """Return the frame that fetches from `offset`; valid until the next call."""
        _INT64.pack_into(self._frame, self._offset_at, offset)
        return self._frame

    def records_in(self, head: bytes | bytearray | memoryview) -> int:
        """Return the length of the records after a response's head; raise FetchFailed if the response has an error."""
        size, error, length = self._fields(head)
        if error:
            raise FetchFailed(error, f"a fetch response has error code {error}")
        if size + 4 != self.head + max(length, 0):  # such as aborted transactions
            raise FetchFailed(0, f"a fetch response has {size + 4} bytes, not {self.head + max(length, 0)}")
        return max(int(length), 0)

    @staticmethod
    def _empty_response(topic: str, version: int) -> bytes:
        response = FETCH.Response
        partition = response.Responses.Partitions(
            partition_index=0, error_code=_MARK, aborted_transactions=None, records=b""
        )
        message = response(responses=[response.Responses(topic=topic, partitions=[partition])])
        return response_frame(FETCH, version, 1, message)


def commit(group: str, topic: str, partitions: int, offset: int, *, version: int, client: str) -> bytes:
    """Return an OffsetCommit request for all partitions of a topic, from a consumer that is not a member of a group."""
    request = OFFSET_COMMIT.Request
    make = request.Topics.Partitions
    each = [make(partition_index=index, committed_offset=offset, committed_metadata="") for index in range(partitions)]
    message = request(group_id=group, member_id="", topics=[request.Topics(name=topic, partitions=each)])
    return request_frame(OFFSET_COMMIT, version, 1, client, message)
