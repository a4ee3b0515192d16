"""A raw connection for tests of groups and offsets: messages of any version, sent without a client.

The messages are encoded by kafkapy's codec, which has its own tests against other implementations.
"""

import time
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from kafkapy.protocol.consumer_protocol import SUBSCRIPTION
from tests.harness.wire import Wire

GROUP, TRANSACTION = 0, 1
PATIENCE_S = 30
NOT_READY = (
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.NOT_COORDINATOR,
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.LEADER_NOT_AVAILABLE,
)


class GroupWire(Wire):
    """A connection with the requests that tests of groups and offsets send often."""

    def until(self, api: Api, version: int, message: Any, code: Any = lambda answer: answer.error_code) -> Any:
        """Repeat `call` while the broker answers that it is not ready. Return the response."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.call(api, version, message)
            if code(answer) not in NOT_READY:
                return answer
            assert time.monotonic() < deadline, f"the broker is not ready: {answer}"
            time.sleep(0.02)

    def make_topic(self, name: str, partitions: int = 4) -> None:
        """Create a topic and wait until the broker has its metadata."""
        topic = apis.CREATE_TOPICS.Request.Topics(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.call(apis.CREATE_TOPICS, 4, apis.CREATE_TOPICS.Request(topics=[topic], timeout_ms=20_000))
        assert answer.topics[0].error_code == Errors.NONE, answer
        asked = apis.METADATA.Request(topics=[apis.METADATA.Request.Topics(name=name)], allow_auto_topic_creation=False)
        self.until(apis.METADATA, 4, asked, lambda answer: answer.topics[0].error_code or _leaderless(answer.topics[0]))

    def find_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Wait until there is a coordinator that has loaded the group."""
        self.until(apis.FIND_COORDINATOR, 3, apis.FIND_COORDINATOR.Request(key=key, key_type=kind))
        if kind == GROUP:
            asked = apis.OFFSET_FETCH.Request(group_id=key, topics=[], require_stable=False)
            self.until(apis.OFFSET_FETCH, 7, asked)

    def commit(
        self,
        group: str,
        offsets: dict[tuple[str, int], Any],
        *,
        version: int = 8,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        **partition: Any,
    ) -> dict[tuple[str, int], int]:
        """Commit offsets. Return the error codes. An offset is a number, or (number, metadata)."""
        message = commit_of(group, offsets, generation=generation, member=member, instance=instance, **partition)
        return _codes(self.call(apis.OFFSET_COMMIT, version, message))

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group: str,
        offsets: dict[tuple[str, int], Any],
        *,
        version: int = 3,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
    ) -> dict[tuple[str, int], int]:
        """Commit offsets in a transaction. Return the error codes."""
        request = apis.TXN_OFFSET_COMMIT.Request
        message = request(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=_topics(request.Topics, offsets),
        )
        return _codes(self.call(apis.TXN_OFFSET_COMMIT, version, message))

    def fetch(
        self, group: str, topics: dict[str, list[int]] | None, *, version: int = 7, stable: bool = False
    ) -> dict[tuple[str, int], tuple[int, int, str, int]]:
        """Return (offset, leader epoch, metadata, error code) by partition. The group's error code must be 0."""
        request = apis.OFFSET_FETCH.Request
        if version >= 8:
            asked = _asked(request.Groups.Topics, topics)
            message = request(groups=[request.Groups(group_id=group, topics=asked)], require_stable=stable)
            (answer,) = self.call(apis.OFFSET_FETCH, version, message).groups
            assert answer.group_id == group
        else:
            message = request(group_id=group, topics=_asked(request.Topics, topics), require_stable=stable)
            answer = self.call(apis.OFFSET_FETCH, version, message)
        assert answer.error_code == Errors.NONE, answer
        return {
            (topic.name, one.partition_index): (
                one.committed_offset,
                one.committed_leader_epoch,
                one.metadata,
                one.error_code,
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return all committed offsets of the group."""
        return {partition: found[0] for partition, found in self.fetch(group, None).items()}

    def delete_offsets(self, group: str, topics: dict[str, list[int]]) -> tuple[int, dict[tuple[str, int], int]]:
        """Delete offsets. Return the group's error code and those of the partitions."""
        request = apis.OFFSET_DELETE.Request
        asked = [
            request.Topics(
                name=name, partitions=[request.Topics.Partitions(partition_index=index) for index in partitions]
            )
            for name, partitions in topics.items()
        ]
        answer = self.call(apis.OFFSET_DELETE, 0, request(group_id=group, topics=asked))
        return answer.error_code, _codes(answer)

    def state_of(self, group: str) -> str:
        (found,) = self.call(apis.DESCRIBE_GROUPS, 5, apis.DESCRIBE_GROUPS.Request(groups=[group])).groups
        assert found.error_code == Errors.NONE
        state: str = found.group_state
        return state

    def join(self, group: str, topics: list[str], *, instance: str | None = None, sync: bool = True) -> tuple[str, int]:
        """Join as the only member of the group. Return (member id, generation)."""
        request = apis.JOIN_GROUP.Request
        subscription = SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=topics), 1)
        message = request(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[request.Protocols(name="range", metadata=subscription)],
        )
        answer = self.call(apis.JOIN_GROUP, 5, message)
        if answer.error_code == Errors.MEMBER_ID_REQUIRED:
            message.member_id = answer.member_id
            answer = self.call(apis.JOIN_GROUP, 5, message)
        assert answer.error_code == Errors.NONE, answer
        if sync:
            asked = apis.SYNC_GROUP.Request(
                group_id=group,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                group_instance_id=instance,
                assignments=[
                    apis.SYNC_GROUP.Request.Assignments(member_id=answer.member_id, assignment=b"\0\1" + bytes(8))
                ],
            )
            assert self.call(apis.SYNC_GROUP, 3, asked).error_code == Errors.NONE
        return answer.member_id, answer.generation_id

    # --- transactions

    def begin(self, transactional_id: str) -> tuple[int, int]:
        """Initialize a transactional producer. Return (producer id, epoch)."""
        self.find_coordinator(transactional_id, TRANSACTION)
        message = apis.INIT_PRODUCER_ID.Request(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = self.until(apis.INIT_PRODUCER_ID, 4, message)
        assert answer.error_code == Errors.NONE, answer
        return answer.producer_id, answer.producer_epoch

    def add_offsets(self, transactional_id: str, producer: tuple[int, int], group: str) -> None:
        message = apis.ADD_OFFSETS_TO_TXN.Request(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        )
        answer = self.until(apis.ADD_OFFSETS_TO_TXN, 3, message)
        assert answer.error_code == Errors.NONE, answer

    def end(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        message = apis.END_TXN.Request(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        answer = self.until(apis.END_TXN, 3, message)
        assert answer.error_code == Errors.NONE, answer


def _leaderless(topic: Any) -> int:
    return Errors.LEADER_NOT_AVAILABLE if any(one.error_code for one in topic.partitions) else Errors.NONE


def commit_of(
    group: str,
    offsets: dict[tuple[str, int], Any],
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    **partition: Any,
) -> Any:
    """Return an OffsetCommit request. An offset is a number, or (number, metadata)."""
    request = apis.OFFSET_COMMIT.Request
    return request(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=_topics(request.Topics, offsets, **partition),
    )


def _topics(make: Any, offsets: dict[tuple[str, int], Any], **partition: Any) -> list[Any]:
    topics: dict[str, Any] = {}
    for (name, index), offset in offsets.items():
        number, metadata = offset if isinstance(offset, tuple) else (offset, "")
        topic = topics.setdefault(name, make(name=name))
        topic.partitions.append(
            make.Partitions(partition_index=index, committed_offset=number, committed_metadata=metadata, **partition)
        )
    return list(topics.values())


def _asked(make: Any, topics: dict[str, list[int]] | None) -> list[Any] | None:
    if topics is None:
        return None
    return [make(name=name, partition_indexes=indexes) for name, indexes in topics.items()]


def _codes(answer: Any) -> dict[tuple[str, int], int]:
    return {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}
