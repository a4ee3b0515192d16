"""One group: its members, its state, and what follows from them. Nothing here waits, answers or writes."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.alarm import Alarm
from kafkapy.coordinator.groups.member import Member, Protocols, Reply
from kafkapy.coordinator.groups.subscriptions import topics_of
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock

EMPTY = "Empty"  # without members: kept for its offsets, or never had any
PREPARING = "PreparingRebalance"  # its members join the next generation
COMPLETING = "CompletingRebalance"  # its leader works out who is assigned what
STABLE = "Stable"  # every member has its assignment, or can get it
DEAD = "Dead"  # about to be deleted, or no longer here

NO_GENERATION = -1


class Group:
    """`members` are in the order in which they joined; `static` maps an instance to the id of its present member.

    pending   ids that were given to members which have not joined with them yet, each with its deadline
    unsynced  members of this generation that have not asked for their assignment
    waiting   members that wait for the next generation
    current_state_timestamp_ms   since when it is in its state; None where an old record does not say
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
        self.pending: dict[str, float] = {}
        self.unsynced: set[str] = set()
        self.waiting = 0
        self._support: Counter[str] = Counter()  # members that support each protocol
        self._topics: set[str] | None = None

        # The first members of a group are waited for, and longer while more of them come.
        self.delay_left_ms: int | None = None  # how much longer, at most; None: nobody is waited for in this way
        self.more_came = False
        self.join_alarm = Alarm()
        self.sync_alarm = Alarm()
        self.session_alarm = Alarm()
        self.next_look = float("inf")  # when the session alarm is due

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
        """The time that the slowest member asks for."""
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
        """A member, or an id that is pending."""
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
        """What it said in another join."""
        self._support_instead(member.protocols, protocols)
        member.protocols = protocols
        member.rebalance_ms = rebalance_ms
        member.session_ms = session_ms

    def rename(self, member: Member, new_id: str) -> None:
        """A static member came back and got a new id; its place and its assignment are the old ones."""
        self.members = {new_id if id == member.id else id: one for id, one in self.members.items()}
        if self.leader == member.id:
            self.leader = new_id
        if member.id in self.unsynced:
            self.unsynced.remove(member.id)
            self.unsynced.add(new_id)
        member.id = new_id
        assert member.instance_id is not None
        self.static[member.instance_id] = new_id

    def await_join(self, member: Member, reply: Reply | None) -> None:
        """The member waits for the next generation; with None, no longer."""
        self.waiting += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def touch(self, member: Member) -> None:
        """The member was heard of."""
        member.deadline = self.clock.monotonic() + member.session_ms / 1000

    # --- protocols

    def _count_support(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support[name] += by
            if not self._support[name]:
                del self._support[name]

    def _support_instead(self, before: Protocols, after: Protocols) -> None:
        if [name for name, _ in before] != [name for name, _ in after]:  # nearly always it is the metadata that changes
            self._count_support(before, -1)
            self._count_support(after, 1)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that knows these may join: there is one that every other member knows too."""
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
        """The one that most members prefer, out of those that all of them support."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        if len(candidates) == 1:
            return next(iter(candidates))
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def would_choose(self, member: Member, protocols: Protocols) -> str:
        """The choice if the member knew these instead."""
        present, member.protocols = member.protocols, protocols
        self._support_instead(present, protocols)
        try:
            return self.choose_protocol()
        finally:
            member.protocols = present
            self._support_instead(protocols, present)

    def subscribed_topics(self) -> set[str] | None:
        """What the members of a consumer group want to read; None where nobody knows."""
        return self._topics

    def find_subscribed_topics(self) -> None:
        if self.protocol_type != PROTOCOL_TYPE:
            self._topics = None
        elif not self.members:
            self._topics = set()
        elif self.protocol is not None:
            self._topics = topics_of(self)
        else:
            self._topics = None

    # --- generations

    def elect_joined_leader(self) -> bool:
        """A leader that did not join gives way to a member that did. False if there is none."""
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
        self.find_subscribed_topics()
        self.unsynced.clear()
        self.move_to(COMPLETING if self.members else EMPTY)

    # --- who may do what

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises KafkaError FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            present = self.static.get(instance_id)
            if present is not None and present != member_id:
                raise KafkaError(
                    Errors.FENCED_INSTANCE_ID,
                    f"{instance_id!r} in group {self.id!r} is now the member {present!r}, no longer {member_id!r}",
                )
            if present is None:
                raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no instance {instance_id!r}")
        if member_id not in self.members:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"group {self.id!r} has no member {member_id!r}")

    def check_generation(self, generation: int) -> None:
        """Raises KafkaError ILLEGAL_GENERATION."""
        if generation != self.generation:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION, f"group {self.id!r} is in generation {self.generation}, not {generation}"
            )

    def check_alive(self) -> None:
        """Raises KafkaError COORDINATOR_NOT_AVAILABLE: the client is to look for the coordinator again."""
        if self.state == DEAD:
            raise KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, f"group {self.id!r} is being deleted")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool) -> None:
        """Whether offsets may be committed; a member that commits is alive.

        A generation below 0 is no member's: that of an administrator, or of a consumer that manages its partitions
        itself, which may commit while there are no members (in a transaction always: old clients do not say who they
        are). Raises KafkaError COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
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
