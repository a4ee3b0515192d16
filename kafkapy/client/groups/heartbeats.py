"""Sends a group member's heartbeats from a thread, so that it stays a member while the caller processes records.

If the caller does not poll for too long, the thread makes the member leave the group, so that other members get its
partitions.

Source: Kafka's AbstractCoordinator.HeartbeatThread and Heartbeat; KIP-62.
"""

import logging
import threading
import time
from typing import Any

from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.errors import AuthenticationFailed, ClientError
from kafkapy.client.groups.coordinator_link import MOVED, CoordinatorLink
from kafkapy.client.groups.group_types import GroupMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import HEARTBEAT, LEAVE_GROUP

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 1.0  # how long `close` waits for a heartbeat in progress, in case the broker does not respond

# Errors after which this consumer is not a member any more, so that heartbeats are pointless.
ENDS = (
    Errors.UNKNOWN_MEMBER_ID,
    Errors.ILLEGAL_GENERATION,
    Errors.FENCED_INSTANCE_ID,
    Errors.GROUP_AUTHORIZATION_FAILED,
    Errors.INVALID_GROUP_ID,
)


class Heartbeats:
    """Sends the heartbeats of a group member from a separate thread. All methods are safe to call at any time.

    Args:
        cluster: The cluster's addresses are copied, because connections belong to one thread.
        interval_s: The time between two heartbeats.
        max_poll_interval_s: The longest time allowed between two calls of `polled`.
    """

    def __init__(self, cluster: Cluster, *, interval_s: float, max_poll_interval_s: float) -> None:
        self._cluster = cluster.another()
        self._interval_s = interval_s
        self._max_poll_interval_s = max_poll_interval_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._member: GroupMetadata | None = None
        self._due = 0.0
        self._polled_at = time.monotonic()
        self._error_code: int = Errors.NONE
        self._poll_timed_out = False
        self._closed = False

    def start(self, member: GroupMetadata) -> None:
        """Send heartbeats for this member and its generation from now on. The first call starts the thread.

        Raise RuntimeError if the thread cannot be started; a later call tries again.
        """
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kafkapy-heartbeats", daemon=True)
                thread.start()
                self._thread = thread
            self._member = member
            self._error_code = Errors.NONE
            self._poll_timed_out = False
            self._due = time.monotonic() + self._interval_s
            self._changed.notify()

    def stop(self) -> bool:
        """Stop sending heartbeats until the next `start`, and reset `error_code` and `poll_timed_out`.

        Return True if the caller had not polled in time: then the member has left the group, or a LeaveGroup is about
        to be sent for it. If False is returned, no LeaveGroup will be sent for this member.
        """
        with self._changed:
            timed_out = self._poll_timed_out
            self._member = None
            self._error_code = Errors.NONE
            self._poll_timed_out = False
            return timed_out

    def resume(self, member: GroupMetadata) -> None:
        """Continue to send heartbeats after `stop`, at the times at which they were due before."""
        with self._changed:
            self._member = member
            self._changed.notify()

    def polled(self) -> None:
        """Record that the caller has polled now."""
        with self._changed:
            self._polled_at = time.monotonic()

    def error_code(self) -> int:
        """Return the last error code in a Heartbeat response that the member has to act on, or NONE."""
        with self._changed:
            return self._error_code

    def poll_timed_out(self) -> bool:
        """Return True if the caller did not poll in time, so that the member has left the group."""
        with self._changed:
            return self._poll_timed_out

    def close(self) -> None:
        """Stop the thread. Does not leave the group."""
        with self._changed:
            self._closed = True
            self._member = None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        """Send each heartbeat when it is due, or leave the group if the caller did not poll in time.

        Ends after `close`. This method is the body of the thread.
        """
        link: CoordinatorLink | None = None
        try:
            while (member := self._next_due()) is not None:
                link = link or CoordinatorLink(self._cluster, member.group_id)
                if self._check_poll_time_out(member):
                    self._leave(link, member)
                else:
                    self._send_heartbeat(link, member)
        finally:
            if link is not None:
                link.close()
            self._cluster.close()

    def _next_due(self) -> GroupMetadata | None:
        """Wait until a heartbeat is due. Return the member to send it for, or None after `close`."""
        with self._changed:
            while not self._closed:
                left = self._due - time.monotonic()
                if self._member is None:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    return self._member
            return None

    def _send_heartbeat(self, link: CoordinatorLink, member: GroupMetadata) -> None:
        """Send one heartbeat. After a retriable error, schedule the next heartbeat soon.

        Any other error code is stored for `error_code`. If the consumer is not a member any more according to the error
        code, no more heartbeats are sent.
        """
        code: int = Errors.NONE
        pause = self._interval_s
        request = HEARTBEAT.Request(
            group_id=member.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            code = link.call(HEARTBEAT, request).error_code
            self._cluster.close()  # drop the connection that found the coordinator; it is rarely needed
        except AuthenticationFailed as error:  # the consumer will get the same error; no extra attempts
            log.warning("heartbeat of group %s: %s", member.group_id, error)
        except KafkaError as error:
            code = error.code
        except ClientError as error:
            log.info("heartbeat of group %s: %s", member.group_id, error)
            pause = min(pause, BACKOFF_S)
        if code in MOVED:
            link.forget()
        if code and code != Errors.REBALANCE_IN_PROGRESS and code not in ENDS:
            code, pause = Errors.NONE, min(pause, BACKOFF_S)
        with self._changed:
            self._due = time.monotonic() + pause
            if self._member == member and code:
                self._error_code = code
                if code in ENDS:
                    self._member = None

    def _check_poll_time_out(self, member: GroupMetadata) -> bool:
        """Return True if the member has to leave because its caller did not poll in time.

        The lock makes the decision and setting the flag one step. Otherwise the caller could poll in between and rejoin
        with the same member id, and the LeaveGroup that follows would remove the member from its new generation. If the
        flag is set, the caller rejoins with a new member id.
        """
        with self._changed:
            late = time.monotonic() - self._polled_at > self._max_poll_interval_s
            if not late or self._member != member:
                return False
            self._poll_timed_out = True
            self._member = None
            return True

    def _leave(self, link: CoordinatorLink, member: GroupMetadata) -> None:
        """Send LeaveGroup for the member, unless it is a static member. Errors are only logged."""
        log.warning(
            "group %s: poll() was not called for %g s, so the member leaves and others get its partitions; poll more "
            "often, take fewer records at a time or raise max_poll_interval_s",
            member.group_id,
            self._max_poll_interval_s,
        )
        if member.instance_id is None:
            try:
                leave(link, member, "poll() was not called in time")
            except (ClientError, KafkaError) as error:
                log.info("leaving group %s: %s", member.group_id, error)


def leave(link: CoordinatorLink, member: GroupMetadata, reason: str, *, timeout_s: float | None = None) -> Any:
    """Send LeaveGroup for the member and return the response. `reason` is sent along if the broker's version allows it.

    Raise KafkaError or ClientError if no response comes.
    """
    shape = LEAVE_GROUP.Request
    if link.connection().version_of(LEAVE_GROUP) < 3:  # one member per request, and no static members
        request = shape(group_id=member.group_id, member_id=member.member_id)
    else:
        # A reason has at most 255 characters (KIP-800).
        leaving = shape.Members(member_id=member.member_id, group_instance_id=member.instance_id, reason=reason[:255])
        request = shape(group_id=member.group_id, members=[leaving])
    return link.call(LEAVE_GROUP, request, timeout_s=timeout_s)
