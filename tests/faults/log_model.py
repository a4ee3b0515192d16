"""A plain model of the records that must be readable after a power cut: the values by offset, and their removals.

Moments are numbers of changes in the journal of the disk (see harness.power_cut).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kafkapy.log.config import LogConfig

FOREVER = 1 << 62


class Claim(NamedTuple):
    """A statement about a topic that must hold from the moment `since` on, until the next claim."""

    since: int
    topic_id: bytes | None  # None: the topic is deleted, or its creation has not finished
    must: dict[int, bytes]  # by offset: records covered by a finished flush whose removal has not begun
    start: int = 0  # records below are being deleted, and may come back


@dataclass
class Appended:
    """A record that was appended and may be found from the moment `since` up to `until`."""

    value: bytes
    since: int
    until: int = FOREVER


@dataclass
class Topic:
    """A topic of one partition."""

    name: str
    config: LogConfig
    topic_id: bytes | None = None
    epoch: int = 0
    records: dict[int, bytes] = field(default_factory=dict)  # the log's current records, by offset
    sequences: dict[int, int] = field(default_factory=dict)  # the next batch's sequence, by producer id
    claims: list[Claim] = field(default_factory=list)
    _flushed: dict[int, bytes] = field(default_factory=dict)  # flushed before the process was killed, by offset
    _appended: dict[int, list[Appended]] = field(default_factory=dict)
    _cut_at: int = FOREVER  # truncated records from here on may come back until a flush beyond

    def append(self, first_offset: int, values: list[bytes], began: int) -> None:
        for offset, value in enumerate(values, first_offset):
            self.records[offset] = value
            self._appended.setdefault(offset, []).append(Appended(value, began))

    def truncate(self, end: int) -> None:
        self.records = {offset: value for offset, value in self.records.items() if offset < end}
        self._cut_at = min(self._cut_at, end)

    def delete(self) -> None:
        self.topic_id = None
        self.records = {}

    def claim(self, began: int, ended: int, log_start: int, flushed: int, log_end: int) -> None:
        """Add the claim of an action: records that it removes may be missing from `began` on, and records that it adds
        must be there from `ended` on."""
        before, start = self.claims[-1], log_start
        if before.topic_id == self.topic_id:
            start = max(log_start, before.start)
            kept = {at: v for at, v in before.must.items() if at >= log_start and self.records.get(at) == v}
            self.claims.append(Claim(began, self.topic_id, kept, start))
        else:
            self.claims.append(Claim(began, None, {}))
        must = {
            at: value
            for at, value in self.records.items()
            if log_start <= at and (at < flushed or self._flushed.get(at) == value)
        }
        self.claims.append(Claim(ended, self.topic_id, must, start))
        if flushed == log_end > self._cut_at:
            self._end_of_others(ended)

    def gone(self, began: int, ended: int) -> None:
        """Record the topic's deletion: none of its records may be found from `ended` on."""
        self.claims.append(Claim(began, None, {}, self.claims[-1].start))
        self._end_of_others(ended)

    def _end_of_others(self, moment: int) -> None:
        """Record that removed records must not be found after `moment`, except those below the log's first record."""
        begin = min(self.records, default=0)
        for offset, values in self._appended.items():
            for each in values:
                if (offset >= begin or self.topic_id is None) and self.records.get(offset) != each.value:
                    each.until = min(each.until, moment)
        self._cut_at = FOREVER

    def claim_at(self, moment: int) -> Claim:
        return next(claim for claim in reversed(self.claims) if claim.since <= moment)

    def may_be(self, offset: int, value: bytes, moment: int) -> bool:
        """Return True if a cut at `moment` may leave this record: it was appended by then, and not removed for good."""
        return any(each.value == value and each.since <= moment < each.until for each in self._appended.get(offset, ()))

    def after(self, moment: int) -> Topic:
        """Return the model of the same topic after a cut at `moment`, before the log is opened."""
        other = Topic(self.name, self.config, epoch=self.epoch, claims=[self.claim_at(moment)._replace(since=0)])
        for offset, values in self._appended.items():
            left = [Appended(each.value, 0) for each in values if each.since <= moment < each.until]
            if left:
                other._appended[offset] = left
        return other

    def found(self, topic_id: bytes | None, records: dict[int, bytes], log_start: int, log_end: int) -> None:
        """Take over the records found after a cut. They were on the disk, so they must stay. Others may come back."""
        self.topic_id, self.records, self._cut_at = topic_id, records, log_end
        start = max([log_start, *(claim.start for claim in self.claims if topic_id is not None)])
        self.claims = [Claim(0, topic_id, dict(records), start)]

    def found_after_kill(self, topic_id: bytes | None, records: dict[int, bytes], log_end: int) -> None:
        """Take over the records found after a kill. They may not be on the disk, so only flushed ones must stay."""
        self.topic_id, self.records, self._cut_at = topic_id, records, log_end
        (claim,) = self.claims
        self._flushed = claim.must
