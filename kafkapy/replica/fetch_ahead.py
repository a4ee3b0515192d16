"""When a follower may ask for what follows a response before it has appended the response.

A Fetch request says that the follower has everything below its fetch offset. A follower that is far behind may say so a
moment too early: while it writes 1 MiB, the leader then sends the next one. If the append fails, the next request names
the real log end offset again, as after a truncation.

This is safe only while the leader draws no conclusion from the fetch offset. It draws two:
  the high watermark      is the lowest log end offset of the in-sync replicas. A follower whose log end offset is below
                          the high watermark is not one of them, and an offset below the high watermark cannot move it.
  the in-sync replicas    a follower joins them only with a fetch offset at or above the high watermark.
The high watermark does not go back within a leader epoch. So an offset below the high watermark of the response has no
effect, in this leader and in Apache Kafka's (Partition.updateFollowerFetchState, isFollowerInSync).
"""

from __future__ import annotations

import struct

from kafkapy.replica.fetch_state import FetchState, Position
from kafkapy.replica.fetched import FetchedPartition

# Base offset, length, leader epoch, magic, last offset delta.
_BATCH = struct.Struct(">qiib6xi")
_HEAD_BYTES = 12  # base offset and length, which the length does not count
_FORMAT_2 = 2
_MOST_BATCHES = 256  # more of them take longer to walk over than the leader needs to send the next response


def position_after(state: FetchState, asked: Position, fetched: FetchedPartition) -> Position | None:
    """Return the position after the records of a response are appended, if the leader may get it before that.

    `asked` is the position for which the leader has sent the response. Returns None if the position could have an
    effect on the leader, or cannot be found out cheaply: the batches are many, or of the message formats 0 and 1.
    """
    if fetched.error_code or fetched.diverging or not fetched.records or state.position != asked:
        return None
    found = _end_of(fetched.records)
    if found is None:
        return None
    offset, epoch = found
    if not asked.offset < offset < fetched.high_watermark or not asked.last_epoch <= epoch <= asked.leader_epoch:
        return None
    return asked._replace(offset=offset, last_epoch=epoch)


def _end_of(records: memoryview) -> tuple[int, int] | None:
    """Return the offset after the last whole batch, and the leader epoch of that batch."""
    at, found = 0, None
    for _ in range(_MOST_BATCHES):
        if len(records) - at < _BATCH.size:
            return found
        base_offset, length, epoch, magic, last_delta = _BATCH.unpack_from(records, at)
        if magic != _FORMAT_2 or length < _BATCH.size or last_delta < 0:
            return None
        at += _HEAD_BYTES + length
        if at > len(records):
            return found
        found = base_offset + last_delta + 1, epoch
    return None
