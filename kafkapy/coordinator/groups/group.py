"""A classic consumer group: its members, state and protocol. Nothing in this module blocks, replies or appends."""

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
    """A classic group. `members` is in order of joining; `static` maps an instance id to the present member id.

    pending     member ids handed out by the coordinator but not yet joined with (KIP-394), with their deadlines
    unsynced    ids of members of this generation that have not sent SyncGroup
    waiting     number of members waiting for a JoinGroup response
    returning   by instance id: a static member that rejoined with a new id, whose record is still being appended
    current_state_timestamp_ms   when the group entered its state; None if an old record does not say
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

        # group.initial.rebalance.delay.ms: the first rebalance of a group waits for more members, longer while more
        # join.
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
        """The longest rebalance time-out of any member."""
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
        """Remove a member or a pending member id, and return the member if there was one."""
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
        """Store what the member sent in another JoinGroup."""
        self._replace_support(member.protocols, protocols)
        member.protocols = protocols
        member.rebalance_ms = rebalance_ms
        member.session_ms = session_ms

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member that rejoined its new id; it keeps its place and its assignment."""
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
        """Set the reply of a JoinGroup that waits for the next generation; None if the member no longer waits."""
        self.waiting += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def touch(self, member: Member) -> None:
        """Extend the member's session."""
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
        """Return True if a member with these protocols may join: one of them is supported by all members."""
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
        """Return the protocol that most members prefer among those that all members support."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        if len(candidates) == 1:
            return next(iter(candidates))
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def would_choose(self, member: Member, protocols: Protocols) -> str:
        """Return the protocol the group would choose if `member` supported `protocols` instead."""
        present, member.protocols = member.protocols, protocols
        self._replace_support(present, protocols)
        try:
            return self.choose_protocol()
        finally:
            member.protocols = present
            self._replace_support(protocols, present)

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics the members of a consumer group subscribe to, or None if that is unknown."""
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
        """Return the topics of all members' subscriptions, or None if a member's metadata cannot be decoded."""
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
        """Replace a leader that did not join by a member that did. Return False if no member joined."""
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
        """Raise KafkaError FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID unless this is a present member."""
        if instance_id is not None:
            present = self.static.get(instance_id)
            if present is not None and present != member_id:
                raise KafkaError(
                    Errors.FENCED_INSTANCE_ID,
                    f"instance {instance_id!r} of group {self.id!r} is now member {present!r}, no longer {member_id!r}",
                )
            if present is None:
                raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no instance {instance_id!r}")
        if member_id not in self.members:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no member {member_id!r}")

    def check_generation(self, generation: int) -> None:
        """Raise KafkaError ILLEGAL_GENERATION unless this is the present generation."""
        if generation != self.generation:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION, f"group {self.id!r} is in generation {self.generation}, not {generation}"
            )

    def check_alive(self) -> None:
        """Raise KafkaError COORDINATOR_NOT_AVAILABLE, which makes clients find the coordinator again, if the group is
        dead."""
        if self.state == DEAD:
            raise KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, f"group {self.id!r} is being deleted")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool) -> None:
        """Raise KafkaError unless the group accepts this offset commit. A commit of a member extends its session.

        A generation below 0 means that no member commits: an administrator, or a consumer that assigns its own
        partitions. Such commits need a group without members; in a transaction they are always accepted, because old
        clients do not send the member there. Raises COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
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
    """Return the topics of a subscription. Every version begins with them, so all are decoded as version 0."""
    version = version_of(metadata, SUBSCRIPTION.name)
    if version < 0:
        raise UnsupportedVersion(f"{SUBSCRIPTION.name} has no version {version}")
    topics: list[str] = SUBSCRIPTION.decode(_VERSION_0 + metadata[len(_VERSION_0) :])[1].topics
    return topics
