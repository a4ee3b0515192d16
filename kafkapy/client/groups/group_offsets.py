"""Commits and fetches a group's offsets for one of its members, and turns the error codes into exceptions.

Source: Kafka's ConsumerCoordinator (OffsetCommitResponseHandler, OffsetFetchResponseHandler).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError, CommitFailed, ConnectionFailed
from kafkapy.client.groups.coordinator_link import CoordinatorLink
from kafkapy.client.groups.group_types import GroupMetadata, OffsetAndMetadata
from kafkapy.client.groups.membership import Membership
from kafkapy.client.responses import check, grouped
from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH

ONE_GROUP_UNTIL = 7  # OffsetFetch has one group up to this version, several after it
STABLE_FROM = 7  # the first OffsetFetch version with require_stable (KIP-447)

Done = Callable[["Exception | None"], None]

_NOT_A_MEMBER = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION)


class GroupOffsets:
    """Commits and fetches the offsets of a group on behalf of one of the group's members."""

    def __init__(self, link: CoordinatorLink, membership: Membership) -> None:
        self._link = link
        self._membership = membership

    def send(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], done: Done) -> None:
        """Send OffsetCommit without waiting for the response. `done` is called later, with None or with the error.

        Raise CommitFailed if this consumer may not commit now, and KafkaError or ConnectionFailed if the request cannot
        be sent.
        """
        member = self._member()

        def take(answer: Any) -> None:
            done(answer if isinstance(answer, ClientError) else self._failure(member, answer))

        self._link.send(OFFSET_COMMIT, commit_request(member, offsets), take)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets and wait for the response. Retriable errors are retried up to `timeout_s`.

        Raise CommitFailed if this consumer may not commit (any more), and KafkaError or ConnectionFailed for any other
        error.
        """

        def attempt() -> None:
            member = self._member()
            answer = self._link.call(OFFSET_COMMIT, commit_request(member, offsets), timeout_s=timeout_s)
            failure = self._failure(member, answer)
            if failure is not None:
                raise failure

        self._link.retry(attempt, timeout_s=timeout_s)

    def fetch_now(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, without partitions that have none.

        Raise ConnectionFailed, or KafkaError for the first error in the response, for example UNSTABLE_OFFSET_COMMIT
        while a transaction with an offset of these partitions is open.
        """
        version = self._link.connection().version_of(OFFSET_FETCH, ONE_GROUP_UNTIL)
        request = fetch_request(self._link.key, partitions, stable=version >= STABLE_FROM)
        # On the link's own connection, the response takes earlier commits into account. But during a rebalance, it
        # would come only after the response to JoinGroup.
        ask = self._link.ask if self._membership.in_rebalance else self._link.call
        response = ask(OFFSET_FETCH, request, at_most=ONE_GROUP_UNTIL)
        check(response.error_code, f"the offsets of group {self._link.key!r}")
        found = {}
        for topic in response.topics:
            for one in topic.partitions:
                check(one.error_code, f"the offset of group {self._link.key!r} in {topic.name}-{one.partition_index}")
                if one.committed_offset >= 0:
                    found[topic.name, one.partition_index] = OffsetAndMetadata(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
        return found

    def fetch(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the same result as `fetch_now`, but retry after retriable errors, up to `timeout_s`."""
        wanted = list(partitions)
        return self._link.retry(lambda: self.fetch_now(wanted), timeout_s=timeout_s)

    def _member(self) -> GroupMetadata:
        """Return this consumer's identity as a group member.

        Raise CommitFailed if it is not a member or is rejoining.
        """
        member = self._membership.member
        if not self._membership.is_member:
            raise self._not_a_member()
        if self._membership.in_rebalance:
            raise self._in_rebalance()
        return member

    def _failure(self, member: GroupMetadata, answer: Any) -> KafkaError | ClientError | None:
        """Return the first error in the response to OffsetCommit as an exception, or None if there is no error.

        `member` is the member that sent the request.
        """
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    return self._exception(member, (topic.name, one.partition_index), one.error_code)
        return None

    def _exception(self, member: GroupMetadata, where: TopicPartition, code: int) -> KafkaError | ClientError:
        """Return the exception for an error code that the commit for the partition `where` got.

        If the request was sent for the current member and generation, also let the membership react to the code: for
        example, the consumer then rejoins the group.
        """
        current = self._membership.member == member
        if code in _NOT_A_MEMBER:
            if current:
                self._membership.refused("commit for", code)
            return self._not_a_member()
        if code == Errors.REBALANCE_IN_PROGRESS:
            if current:
                self._membership.must_join("a commit met a rebalance")
            return self._in_rebalance()
        if code == Errors.FENCED_INSTANCE_ID:
            reason = f"another consumer has joined with the instance id {member.instance_id!r}; give each its own"
            return CommitFailed(member.group_id, code, reason)
        if code == Errors.REQUEST_TIMED_OUT:
            # Kafka's client looks the coordinator up again after REQUEST_TIMED_OUT, too.
            return ConnectionFailed(f"group {member.group_id!r}: the commit took the coordinator too long")
        return KafkaError(code, f"the offset of group {member.group_id!r} in {where[0]}-{where[1]}: {message_of(code)}")

    def _in_rebalance(self) -> CommitFailed:
        return CommitFailed(
            self._link.key,
            Errors.REBALANCE_IN_PROGRESS,
            "the group is rebalancing; call poll() and then commit again",
        )

    def _not_a_member(self) -> CommitFailed:
        return CommitFailed(
            self._link.key,
            Errors.UNKNOWN_MEMBER_ID,
            "this consumer was removed from the group, because the time between two polls was too long or the "
            "broker could not be reached; poll more often, take fewer records at a time or raise max_poll_interval_s",
        )


def commit_request(member: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
    """Return an OffsetCommit request for these offsets, with the group, generation and member id of `member`."""
    shape = OFFSET_COMMIT.Request
    topics: dict[str, list[Any]] = {}
    for (topic, index), one in offsets.items():
        topics.setdefault(topic, []).append(
            shape.Topics.Partitions(
                partition_index=index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    return shape(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[shape.Topics(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def fetch_request(group_id: str, partitions: Iterable[TopicPartition], *, stable: bool) -> Any:
    """Return an OffsetFetch request for these partitions of one group.

    With `stable`, the broker returns an error for an offset that an open transaction may change.
    """
    shape = OFFSET_FETCH.Request
    return shape(
        group_id=group_id,
        topics=[shape.Topics(name=topic, partition_indexes=indexes) for topic, indexes in grouped(partitions).items()],
        require_stable=stable,
    )
