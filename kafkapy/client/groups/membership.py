"""A consumer's membership in its group across rebalances: sends JoinGroup and SyncGroup and handles the responses.

No method here waits for a response. Callbacks change the state when the responses come.

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
        member: The member's identity. Its generation is NO_GENERATION while this consumer is not a member.
        assignment: The encoded assignment in the last SyncGroup response. None after GroupSession has processed it.
        protocol: The name of the assignor that the group has chosen.
        rejoin: The reason why JoinGroup has to be sent. Empty if it does not have to be sent.
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
        """True if this consumer has joined the group and was not removed since."""
        return self.member.generation != NO_GENERATION

    @property
    def in_rebalance(self) -> bool:
        """True while JoinGroup or SyncGroup was sent and has no response yet."""
        return self.state in (State.JOINING, State.SYNCING)

    @property
    def wants_to_join(self) -> bool:
        """True if `join` has to be called."""
        return bool(self.rejoin) and not self.in_rebalance

    def must_join(self, why: str) -> None:
        """Record that `join` has to be called. JoinGroup will send the reason `why` to the coordinator.

        If a reason is already recorded, that one is kept.
        """
        self.rejoin = self.rejoin or why

    def lost(self, why: str, *, keep_id: bool = False) -> None:
        """Handle the loss of the membership: stop the heartbeats, and record that `join` has to be called.

        The consumer then joins as a new member, or with its present member id if `keep_id` is True and no LeaveGroup
        may have been sent for that id.
        """
        member_id = self.member.member_id
        if self._heartbeats.stop():  # a LeaveGroup for this id may be on its way
            keep_id = False
        log.info("group %s: %s is no longer a member: %s", self._link.key, member_id or "this consumer", why)
        self.end()
        self.member = self.member._replace(member_id=member_id if keep_id else "")
        self.must_join(why)

    def end(self) -> None:
        """Reset this membership to that of a consumer that is not a member and does not have to join."""
        self.member = self.member._replace(generation=NO_GENERATION, member_id="")
        self.assignment = None
        self.rejoin = ""
        self._back_to_unjoined()

    def join(self, protocols: Protocols) -> None:
        """Send JoinGroup, unless the last attempt was less than BACKOFF_S ago. A callback handles the response later.

        If the consumer did not poll in time, the member has left the group. In that case JoinGroup is not sent, `lost`
        is called instead, and the next call of `join` joins as a new member.

        Raises:
            KafkaError: The coordinator refuses this consumer, and retries do not help.
            ConnectionFailed: No broker can be reached.
        """
        if time.monotonic() < self._not_before:
            return
        # Stop before the request is built: the caller may have spent the poll interval in a listener or a commit.
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
            if self.is_member:  # it stays a member until its session expires
                self._heartbeats.resume(self.member)
            if isinstance(error, ClientError):
                raise
            self.refused("find the coordinator", error.code, str(error))
            return
        self.state = State.JOINING
        # The coordinator waits for the other members as long as the longest rebalance time-out among them.
        self._give_up_at = time.monotonic() + max(self._rebalance_timeout_s, self._link.cluster.timeout_s) + 5

    def give_up_if_overdue(self) -> None:
        """If the response to JoinGroup or SyncGroup is overdue, close the connection, so that `join` is due again."""
        if self.in_rebalance and time.monotonic() > self._give_up_at:
            self._link.forget()

    def _joined(self, attempt: int, answer: Any) -> None:
        """Handle the response to JoinGroup: send SyncGroup, or send JoinGroup again with the member id received.

        `attempt` is the number of the rebalance attempt. The response is ignored if that attempt is over.
        """
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
        """Start the heartbeats and send SyncGroup.

        If this member is the leader, compute the assignment of all members first. `joined` is the response to
        JoinGroup.
        """
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
        """Handle the response to SyncGroup: store this member's assignment, or record that `join` has to be called.

        The response is ignored if the rebalance attempt with the number `attempt` is over.
        """
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
        """Handle an error code from the coordinator, usually so that the consumer can join again.

        Raise GroupFailed if the error is permanent. Its text says that the consumer cannot `what` (such as "join") the
        group.
        """
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
        """End the current rebalance attempt and return to the state UNJOINED.

        Responses that are still to come are ignored. With `soon`, the next `join` may follow at once. If this consumer
        is not a member, the heartbeats stop.
        """
        self._attempt += 1  # ignore responses that are still to come
        self.state = State.UNJOINED
        if soon:
            self._not_before = 0.0
        if not self.is_member:
            self._heartbeats.stop()


def _advice(code: int, member: GroupMetadata) -> str:
    """Return the error message for a permanent error code of a group.

    The message says what to do, where that is known.
    """
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
