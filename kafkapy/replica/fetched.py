"""A Fetch response as a follower needs it: the records of each partition are views of the frame."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy._ext.fetched import decode_fetch_response


class FetchedPartition(NamedTuple):
    """One partition of a Fetch response.

    topic       the topic id (16 bytes) from version 13 on, before that the topic's name
    diverging   where the leader's log diverges from the follower's, (epoch, end offset) (KIP-595); None if it does not
    records     whole batches, of which the last may be cut off; a view of the frame, None for null
    """

    topic: bytes | str
    partition: int
    error_code: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None
    records: memoryview | None


class Fetched(NamedTuple):
    """A decoded Fetch response: the error of the whole response, the id of the fetch session, and the partitions."""

    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def decode_fetched(frame: memoryview, version: int, start: int) -> Fetched:
    """Decode a Fetch response of version 12 or later, which begins at `start` of the frame. Raises ProtocolError."""
    error_code, session_id, partitions = decode_fetch_response(frame, version, start)
    return Fetched(error_code, session_id, list(map(FetchedPartition._make, partitions)))
