"""The loop of `kafkapy consume`: print the records that a member returns, then commit their offsets.

A record is committed only after its line has left this process. After a crash in between, the member that takes over
the partition prints the line again; no record is left out.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kafkapy.client.fetched import ConsumerRecord


class Member(Protocol):
    """A source of records for `kafkapy consume`: a group member (KafkaMember with a group coordinator, ZooKeeperMember
    with a group in ZooKeeper), or AssignedMember, which has no group."""

    def poll(self) -> Sequence[ConsumerRecord]:
        """Return the next records, or none if none came for a moment. Raises KafkaError."""

    def printed(self, records: Sequence[ConsumerRecord], count: int) -> None:
        """Note that the first `count` of the records of the last poll were written to standard output. Flush standard
        output and commit from time to time."""

    def is_at_the_ends(self) -> bool:
        """Return True if the member has read its partitions up to the ends that they had when they were assigned."""

    def commit(self) -> None:
        """Commit the offsets of the printed records, and wait for the response. A failure is printed on standard
        error."""


def print_records(
    joining: AbstractContextManager[Member],
    interrupted: threading.Event,
    *,
    most: int | None,
    follow: bool,
    show: Callable[[ConsumerRecord], bytes],
) -> None:
    """Join the group; then print and commit records until `most` records are printed, `interrupted` is set, or, without
    `follow`, the ends of the partitions are reached."""
    out = sys.stdout.buffer
    with joining as member:
        count = 0
        while not interrupted.is_set() and count != most:
            records = member.poll()
            wanted = records if most is None else records[: most - count]
            for record in wanted:
                out.write(show(record))
            count += len(wanted)
            member.printed(records, len(wanted))
            if not follow and member.is_at_the_ends():
                break
        member.commit()
