"""A consumer's membership in its group across rebalances: JoinGroup, SyncGroup, and their errors.

Nothing here waits: requests are sent, and callbacks change the state when the responses come.

Source: Kafka's AbstractCoordinator (JoinGroupResponseHandler, SyncGroupResponseHandler) and ConsumerCoordinator.
"""

import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kafkapy.client.cluster import BACKOFF_S
from kafkapy.client.errors import ClientError, GroupFailed
from kafkapy.client.groups.coordinator_link import MOVED, CoordinatorLink
from kafkapy.client.groups.group_types import GroupMetadata
from kafkapy.client.groups.heartbeats import Heartbeats
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of, name_of
from kafkapy.protocol.apis import JOIN_GROUP, SYNC_GROUP
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

log = logging.getLogger(__name__)

NO_GENERATION = -1

# (assignor's name, encoded subscription), the preferred assignor first.
Protocols = Sequence[tuple[str, bytes]]
# Runs an assignor: (its name, members as in JoinGroup's response) -> encoded assignment by member id.
Lead = Callable[[str, Sequence[Any]], "dict[str, bytes]"]


class State(Enum):
    """The member's state in the current rebalance."""

    UNJOINED = "unjoined"
    JOINING = "joining"  # JoinGroup was sent
    SYNCING = "syncing"  # SyncGroup was sent
    STABLE = "stable"


class Membership:
    """One consumer's membership in one group.

    Attributes:
        member: The member's identity; its generation is NO_GENERATION while this consumer is not a member.
        assignment: The assignment of the last SyncGroup. Code that takes the assignment sets this to None.
        protocol: The assignor that the group has chosen.
        rejoin: The reason why a join is due; empty if no join is due.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        heartbeats: Heartbeats,
        *,
        instance_id: str | None,
        session_timeout_s: float,
        rebalance_timeout_s: float,
        lead: Lead,
    ) -> None:
        self.member = GroupMetadata(link.key, instance_id=instance_id)
        self.state = State.UNJOINED
        self.protocol = ""
        self.assignment: bytes | None = None
        self.rejoin = "the first join"
        self.is_leader = False
        self._link = link
        self._heartbeats = heartbeats
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._lead = lead
        self._attempt = 0
        self._protocols: Protocols = ()
        self._not_before = 0.0
        self._give_up_at = 0.0

    @property
    def is_member(self) -> bool:
        """True if this consumer has joined and was not removed since."""
        return self.member.generation != NO_GENERATION

    @property
    def in_rebalance(self) -> bool:
        """True while JoinGroup or SyncGroup is outstanding."""
        return self.state in (State.JOINING, State.SYNCING)

    @property
    def wants_to_join(self) -> bool:
        """True if `join` is due."""
        return bool(self.rejoin) and not self.in_rebalance

    def must_join(self, why: str) -> None:
        """Record that a `join` is due. JoinGroup will send `why` to the coordinator as the reason."""
        self.rejoin = self.rejoin or why

    def lost(self, why: str, *, keep_id: bool = False) -> None:
        """Handle the removal from the group: a join is due, as a new member unless `keep_id`."""
        member_id = self.member.member_id
        if self._heartbeats.stop():  # a LeaveGroup for this id may be on its way
            keep_id = False
        log.info("group %s: %s is no longer a member: %s", self._link.key, member_id or "this consumer", why)
        self.end()
        self.member = self.member._replace(member_id=member_id if keep_id else "")
        self.must_join(why)

    def end(self) -> None:
        """Forget the membership. No join is due."""
        self.member = self.member._replace(generation=NO_GENERATION, member_id="")
        self.assignment = None
        self.rejoin = ""
        self._back_to_unjoined()

    def join(self, protocols: Protocols) -> None:
        """Send JoinGroup, unless the last attempt was a moment ago. The response is handled by a callback later.

        If the consumer did not poll in time, the member has left the group. Then call `lost` instead; the next call of
        `join` joins as a new member.

        Raises:
            KafkaError: The coordinator refuses permanently.
            ConnectionFailed: No broker can be reached.
        """
        if time.monotonic() < self._not_before:
            return
        # Before the request is built. The caller may have spent the time in a listener or a commit since it polled.
        # If the heartbeat thread decided to leave after the request was built, JoinGroup and LeaveGroup would have the
        # same member id, and the LeaveGroup could remove the member from its new generation.
        if self._heartbeats.stop():
            self.lost("poll() was not called in time")
            return
        self._not_before = time.monotonic() + BACKOFF_S
        self._protocols = protocols
        shape = JOIN_GROUP.Request
        request = shape(
            group_id=self.member.group_id,
            session_timeout_ms=int(self._session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._rebalance_timeout_s * 1000),
            member_id=self.member.member_id,
            group_instance_id=self.member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[shape.Protocols(name=name, metadata=metadata) for name, metadata in protocols],
            reason=self.rejoin[:255],  # the limit of KIP-800
        )
        self._attempt += 1
        attempt = self._attempt
        try:
            self._link.send(JOIN_GROUP, request, lambda answer: self._joined(attempt, answer))
        except (ClientError, KafkaError) as error:
            if self.is_member:  # until its session expires
                self._heartbeats.resume(self.member)
            if isinstance(error, ClientError):
                raise
            self.refused("find the coordinator", error.code, str(error))
            return
        self.state = State.JOINING
        # The coordinator waits for the other members as long as the longest rebalance time-out among them.
        self._give_up_at = time.monotonic() + max(self._rebalance_timeout_s, self._link.cluster.timeout_s) + 5

    def give_up_if_overdue(self) -> None:
        """Abandon a JoinGroup or SyncGroup whose response is overdue."""
        if self.in_rebalance and time.monotonic() > self._give_up_at:
            self._link.forget()

    def _joined(self, attempt: int, answer: Any) -> None:
        """Handle JoinGroup's response: send SyncGroup, or join again with the new member id."""
        if attempt != self._attempt or self.state is not State.JOINING:
            return
        if isinstance(answer, ClientError):
            self._back_to_unjoined()
        elif answer.error_code == Errors.MEMBER_ID_REQUIRED and not self.member.member_id and answer.member_id:
            self.member = self.member._replace(member_id=answer.member_id)
            self._not_before = 0.0
            self.state = State.UNJOINED
            self.join(self._protocols)
        elif answer.error_code:
            self.refused("join", answer.error_code)
        else:
            self.member = self.member._replace(generation=answer.generation_id, member_id=answer.member_id)
            self.protocol = answer.protocol_name
            self.is_leader = answer.leader == answer.member_id
            self.rejoin = ""
            self._sync(answer)

    def _sync(self, joined: Any) -> None:
        """Start the heartbeats and send SyncGroup, which has the assignments of all members if this member leads."""
        shares: dict[str, bytes] = {}
        if self.is_leader and not joined.skip_assignment:
            try:
                shares = self._lead(self.protocol, joined.members)
            except BaseException:
                self.must_join("the leader could not compute the assignment")
                self.state = State.UNJOINED
                raise
        shape = SYNC_GROUP.Request
        request = shape(
            group_id=self.member.group_id,
            generation_id=self.member.generation,
            member_id=self.member.member_id,
            group_instance_id=self.member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=[shape.Assignments(member_id=one, assignment=share) for one, share in shares.items()],
        )
        attempt = self._attempt
        try:
            self._heartbeats.start(self.member)
        except RuntimeError:  # the thread cannot be started
            self.must_join("its heartbeats could not be started")
            self._back_to_unjoined()
            raise
        self.state = State.SYNCING
        try:
            self._link.send(SYNC_GROUP, request, lambda answer: self._synced(attempt, answer))
        except (KafkaError, ClientError):
            self.must_join("the coordinator could not be reached")
            self._back_to_unjoined()

    def _synced(self, attempt: int, answer: Any) -> None:
        """Handle SyncGroup's response, which has this member's assignment."""
        if attempt != self._attempt or self.state is not State.SYNCING:
            return
        if isinstance(answer, ClientError):
            self.must_join("the coordinator could not be reached")
            self._back_to_unjoined()
        elif answer.error_code:
            self.must_join(f"SyncGroup failed with {name_of(answer.error_code)}")
            self.refused("sync with", answer.error_code)
        else:
            self.state = State.STABLE
            self.assignment = bytes(answer.assignment)

    def refused(self, what: str, code: int, message: str | None = None) -> None:
        """React to an error code of any of the group's requests. Raise GroupFailed if it is permanent."""
        if code == Errors.UNKNOWN_MEMBER_ID:
            self.lost("the coordinator does not know it")
        elif code == Errors.ILLEGAL_GENERATION:
            self.lost("the group has a newer generation", keep_id=True)
        elif code == Errors.REBALANCE_IN_PROGRESS:
            self._back_to_unjoined(soon=True)
        elif code in MOVED:
            self._link.forget()
            self._back_to_unjoined()
        elif is_retriable(code):
            self._back_to_unjoined()
        else:
            self._back_to_unjoined()
            raise GroupFailed(self.member.group_id, what, code, message or _advice(code, self.member))

    def _back_to_unjoined(self, *, soon: bool = False) -> None:
        """End the current rebalance without success. `soon`: the next `join` may follow at once."""
        self._attempt += 1  # ignore responses that are still to come
        self.state = State.UNJOINED
        if soon:
            self._not_before = 0.0
        if not self.is_member:
            self._heartbeats.stop()


def _advice(code: int, member: GroupMetadata) -> str:
    """Return an error message that says what to do."""
    if code == Errors.FENCED_INSTANCE_ID:
        return (
            f"another consumer has joined with the instance id {member.instance_id!r}; give each consumer an "
            "instance id of its own"
        )
    if code == Errors.INCONSISTENT_GROUP_PROTOCOL:
        return "its other members have no assignor in common with this one, or are not consumers; use one of theirs"
    if code == Errors.GROUP_MAX_SIZE_REACHED:
        return "it has as many members as the broker allows (group.max.size)"
    if code == Errors.INVALID_SESSION_TIMEOUT:
        return "session_timeout_s is not between what the broker's group.min and group.max.session.timeout.ms allow"
    return message_of(code)
