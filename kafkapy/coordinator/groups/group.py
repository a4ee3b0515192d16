"""A classic consumer group in memory: its members, state and protocol. The code in this module does not block, send
responses or append records."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.alarm import Alarm
from kafkapy.coordinator.groups.member import Member, Protocols, Reply
from kafkapy.errors import Errors, KafkaError, ProtocolError, UnsupportedVersion
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE, SUBSCRIPTION
from kafkapy.protocol.versioned import version_of

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock

EMPTY = "Empty"  # without members, but may have offsets
PREPARING = "PreparingRebalance"  # members are joining the next generation
COMPLETING = "CompletingRebalance"  # the leader is computing the assignment
STABLE = "Stable"  # every member has its assignment or can fetch it with SyncGroup
DEAD = "Dead"  # being deleted, or its shard has ended

NO_GENERATION = -1
_VERSION_0 = b"\0\0"

log = logging.getLogger("kafkapy.coordinator.groups")


class Group:
    """A classic consumer group. `members` is in order of joining; `static` maps each instance id to the current member
    id of that static member.

    pending     member ids that were handed out with MEMBER_ID_REQUIRED (KIP-394) and have not joined yet, with their
                deadlines in monotonic seconds
    unsynced    ids of the members that have not sent SyncGroup in this generation
    waiting     number of members that wait for a JoinGroup response
    returning   by instance id: a static member that rejoined, while the record with its new id is being appended
    current_state_timestamp_ms   when the group entered its state; None if an old record does not tell the time
    """

    def __init__(self, id: str, clock: Clock) -> None:
        self.id = id
        self.clock = clock
        self.state = EMPTY
        self.current_state_timestamp_ms: int | None = clock.time_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.returning: dict[str, Member] = {}
        self.pending: dict[str, float] = {}
        self.unsynced: set[str] = set()
        self.waiting = 0
        self._support: Counter[str] = Counter()  # number of members that support each protocol
        self._topics: set[str] | None = None

        # group.initial.rebalance.delay.ms: the first rebalance of a group waits for more members, and waits longer
        # while more members join.
        self.delay_left_ms: int | None = None  # the rest of the maximum delay; None outside the initial delay
        self.joined_in_delay = False
        self.join_alarm = Alarm()
        self.sync_alarm = Alarm()
        self.session_alarm = Alarm()
        self.next_session_check = float("inf")  # the monotonic time of session_alarm

    def __repr__(self) -> str:
        return f"Group({self.id!r}, {self.state}, generation {self.generation}, {len(self.members)} members)"

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    @property
    def all_have_joined(self) -> bool:
        return self.waiting == len(self.members) and not self.pending

    @property
    def rebalance_ms(self) -> int:
        """The longest rebalance time-out of the group's members in milliseconds, 0 for a group without members."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def move_to(self, state: str) -> None:
        self.state = state
        self.current_state_timestamp_ms = self.clock.time_ms()

    # --- members

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        return f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}"

    def add(self, member: Member, protocol_type: str, join_reply: Reply | None) -> None:
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count_support(member.protocols, 1)
        self.await_join(member, join_reply)
        self.pending.pop(member.id, None)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, or a member id that was handed out but has not joined yet, from the group. Return the
        removed member, or None if no member had this id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member.protocols, -1)
            self.waiting -= member.join_reply is not None
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        """Store the protocols and time-outs (in milliseconds) that a known member sent in another JoinGroup."""
        self._replace_support(member.protocols, protocols)
        member.protocols = protocols
        member.rebalance_ms = rebalance_ms
        member.session_ms = session_ms

    def rename(self, member: Member, new_id: str) -> None:
        """Change the member id of a static member that has rejoined to `new_id`. The member keeps its assignment and
        its position in `members`, and remains leader if it was the leader."""
        self.members = {new_id if id == member.id else id: other for id, other in self.members.items()}
        if self.leader == member.id:
            self.leader = new_id
        if member.id in self.unsynced:
            self.unsynced.remove(member.id)
            self.unsynced.add(new_id)
        member.id = new_id
        assert member.instance_id is not None
        self.static[member.instance_id] = new_id

    def await_join(self, member: Member, reply: Reply | None) -> None:
        """Store the reply callback of the member's JoinGroup, which is called when the next generation begins. None
        means that the member no longer waits for a response."""
        self.waiting += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def touch(self, member: Member) -> None:
        """Extend the member's session by its session time-out, counted from now."""
        member.deadline = self.clock.monotonic() + member.session_ms / 1000

    # --- protocols

    def _count_support(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support[name] += by
            if not self._support[name]:
                del self._support[name]

    def _replace_support(self, before: Protocols, after: Protocols) -> None:
        if [name for name, _ in before] != [name for name, _ in after]:  # usually only the metadata has changed
            self._count_support(before, -1)
            self._count_support(after, 1)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return True if a member with this protocol type and these protocols may join the group. All current members
        must have the same protocol type, and at least one of the protocols must be supported by all of them. An empty
        group accepts any protocol type with at least one protocol."""
        if self.state == EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        count = len(self.members)
        for name, _ in protocols:  # noqa: SIM110 - a generator takes three times as long, and a thousand members join
            if self._support[name] == count:
                return True
        return False

    def choose_protocol(self) -> str:
        """Return the name of the protocol that gets the most votes: every member votes for its most preferred protocol
        among those that all members support."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        if len(candidates) == 1:
            return next(iter(candidates))
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def would_choose(self, member: Member, protocols: Protocols) -> str:
        """Return the name of the protocol that the group would choose if `member` supported `protocols` instead of its
        current ones."""
        present, member.protocols = member.protocols, protocols
        self._replace_support(present, protocols)
        try:
            return self.choose_protocol()
        finally:
            member.protocols = present
            self._replace_support(protocols, present)

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that the members of a consumer group subscribe to, or None if the topics are unknown, for
        example because the members are not consumers."""
        return self._topics

    def update_subscribed_topics(self) -> None:
        if self.protocol_type != PROTOCOL_TYPE:
            self._topics = None
        elif not self.members:
            self._topics = set()
        elif self.protocol is not None:
            self._topics = self._decoded_topics(self.protocol)
        else:
            self._topics = None

    def _decoded_topics(self, protocol: str) -> set[str] | None:
        """Return the topics that all members together subscribe to, or None if the metadata of a member cannot be
        decoded."""
        # A set, because most members have the same metadata.
        distinct = {member.metadata(protocol) for member in self.members.values()}
        try:
            return {topic for metadata in distinct for topic in _topics(metadata)}
        except (ProtocolError, UnsupportedVersion) as error:
            log.warning(
                "the subscriptions of group %r with protocol %r cannot be decoded: %s", self.id, protocol, error
            )
            return None

    # --- generations

    def elect_joined_leader(self) -> bool:
        """If the leader has not rejoined in this rebalance, make a member that has rejoined the leader. Return False if
        no member has rejoined, else True."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is None:
            joined = next((member.id for member in self.members.values() if member.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def next_generation(self) -> None:
        self.generation += 1
        self.protocol = self.choose_protocol() if self.members else None
        self.update_subscribed_topics()
        self.unsynced.clear()
        self.move_to(COMPLETING if self.members else EMPTY)

    # --- checks of requests

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise KafkaError FENCED_INSTANCE_ID if the instance id now belongs to another member id, UNKNOWN_MEMBER_ID if
        the group does not have the member."""
        if instance_id is not None:
            present = self.static.get(instance_id)
            if present is not None and present != member_id:
                raise KafkaError(
                    Errors.FENCED_INSTANCE_ID,
                    f"instance {instance_id!r} of group {self.id!r} is member {present!r}, not {member_id!r}",
                )
            if present is None:
                raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no instance {instance_id!r}")
        if member_id not in self.members:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no member {member_id!r}")

    def check_generation(self, generation: int) -> None:
        """Raise KafkaError ILLEGAL_GENERATION unless the group is in this generation."""
        if generation != self.generation:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION, f"group {self.id!r} is in generation {self.generation}, not {generation}"
            )

    def check_alive(self) -> None:
        """Raise KafkaError COORDINATOR_NOT_AVAILABLE if the group is dead. This error makes clients find the
        coordinator again."""
        if self.state == DEAD:
            raise KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, f"group {self.id!r} is being deleted")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool) -> None:
        """Raise KafkaError unless the group accepts this offset commit. A non-transactional commit of a member extends
        the member's session.

        A generation below 0 means that the commit does not come from a member, but from an administrator or from a
        consumer that assigns its own partitions. Such commits are accepted only while the group has no members. In a
        transaction they are always accepted, because old clients do not send the member id with transactional commits.

        Raises COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS.
        """
        self.check_alive()
        if generation < 0 and self.state == EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not transactional:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has members, and only they may commit")
        if transactional or self.state == EMPTY:
            return
        if self.state == COMPLETING:
            raise KafkaError(Errors.REBALANCE_IN_PROGRESS, f"group {self.id!r} is rebalancing")
        self.touch(self.members[member_id])


def _topics(metadata: bytes) -> list[str]:
    """Return the topics in a consumer's encoded subscription. A subscription of any version begins like version 0, with
    the topics, so it is decoded as version 0. Raises ProtocolError, UnsupportedVersion."""
    version = version_of(metadata, SUBSCRIPTION.name)
    if version < 0:
        raise UnsupportedVersion(f"{SUBSCRIPTION.name} has no version {version}")
    topics: list[str] = SUBSCRIPTION.decode(_VERSION_0 + metadata[len(_VERSION_0) :])[1].topics
    return topics
