"""The common part of OffsetCommit and TxnOffsetCommit: the offsets of a request, and the result for each partition.

It is a separate module so that the first commit imports it: the handlers are imported when the broker starts.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.offset_records import NO_TIMESTAMP, CommittedOffset
from kafkapy.coordinator.offsets.commits import Commit
from kafkapy.coordinator.offsets.store import GroupOffset
from kafkapy.coordinator.shard import Producer
from kafkapy.errors import Errors

if TYPE_CHECKING:
    from kafkapy.metadata.cache import MetadataCache

__all__ = ["Answers", "Commit", "Producer"]


class Answers:
    """The results of a commit request, for each partition. As in Kafka, topics with partitions that are not committed
    come first, and these partitions first in their topic; otherwise the order is that of the request.

    `offsets` are the offsets to commit: those of existing partitions, except the topics in `refused`, which has an
    error code for each topic whose offsets must not be committed. `own_times`: use the commit timestamps in the request
    (version 1). `expire_ms`: the time at which the offsets expire, -1 if the broker's retention applies.
    """

    __slots__ = ("_committed", "_response", "_topics", "offsets")

    def __init__(
        self,
        cache: MetadataCache,
        response: Any,
        topics: list[Any],
        now_ms: int,
        expire_ms: int = NO_TIMESTAMP,
        *,
        own_times: bool = False,
        refused: Mapping[str, int] | None = None,
    ) -> None:
        self._response = response
        self._topics: list[Any] = []
        self._committed: list[Any] = []  # the results of `offsets`
        self.offsets: list[GroupOffset] = []
        make_topic, make_answer = response.Topics, response.Topics.Partitions
        to_commit, new = self.offsets.append, tuple.__new__
        whole: list[Any] = []
        for topic in topics:
            name = topic.name
            indexes: Container[int] = cache.indexes(name)
            missing: int = Errors.UNKNOWN_TOPIC_OR_PARTITION
            if refused is not None and name in refused:
                indexes, missing = (), refused[name]
            answers, refusals = [], []
            for one in topic.partitions:
                index = one.partition_index
                if index in indexes:
                    at_ms = one.commit_timestamp if own_times and one.commit_timestamp != NO_TIMESTAMP else now_ms
                    metadata = one.committed_metadata or ""
                    values = one.committed_offset, one.committed_leader_epoch, metadata, at_ms, expire_ms
                    # Without the constructors in Python, which take a tenth of the time of a small commit:
                    to_commit(new(GroupOffset, (name, index, new(CommittedOffset, values))))
                    answers.append(make_answer(partition_index=index))
                else:
                    refusals.append(make_answer(partition_index=index, error_code=missing))
            self._committed += answers
            (self._topics if refusals else whole).append(make_topic(name=name, partitions=refusals + answers))
        self._topics += whole

    def message(self, codes: list[int]) -> Any:
        """Return the response message. `codes` are the error codes for `offsets`, in the same order, or [] if there are
        none."""
        if any(codes):
            for answer, code in zip(self._committed, codes, strict=True):
                answer.error_code = code
        return self._response(topics=self._topics)
