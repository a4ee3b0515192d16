"""Heartbeats of a group's member, on a thread, so that it stays one while the caller works on records.

A member whose caller does not come back to poll for too long leaves, so that others get its partitions.

Source: Kafka's AbstractCoordinator.HeartbeatThread and Heartbeat; KIP-62.
"""

import logging
import threading
import time
from typing import Any

from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.coordinator_link import MOVED, CoordinatorLink
from kafkapy.client.errors import ClientError
from kafkapy.client.group_types import GroupMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import HEARTBEAT, LEAVE_GROUP

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 1.0  # for a heartbeat that is under way; a broker that is gone does not hold up the caller longer

# The member is one no longer: there is nothing to keep alive.
ENDS = (
    Errors.UNKNOWN_MEMBER_ID,
    Errors.ILLEGAL_GENERATION,
    Errors.FENCED_INSTANCE_ID,
    Errors.GROUP_AUTHORIZATION_FAILED,
    Errors.INVALID_GROUP_ID,
)


class Heartbeats:
    """Runs from the first `start` to `close`. All methods may be called at any time, from the caller's thread.

    Args:
        cluster: is copied: connections belong to one thread.
        interval_s: between two heartbeats.
        max_poll_interval_s: how long the caller may stay away from `polled`.
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
        self._news: int = Errors.NONE
        self._overslept = False
        self._closed = False

    def start(self, member: GroupMetadata) -> None:
        """Heartbeats of this member in this generation, and no other, from now on."""
        with self._changed:
            self._member = member
            self._news = Errors.NONE
            self._overslept = False
            self._due = time.monotonic() + self._interval_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafkapy-heartbeats", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """No more, until the next `start`; what was heard is forgotten."""
        with self._changed:
            self._member = None
            self._news = Errors.NONE
            self._overslept = False

    def polled(self) -> None:
        """The caller is there."""
        with self._changed:
            self._polled_at = time.monotonic()

    def news(self) -> int:
        """The error code that the member which was started has to act upon; NONE if there is none."""
        with self._changed:
            return self._news

    def overslept(self) -> bool:
        """Whether the caller stayed away too long, so that the member has left."""
        with self._changed:
            return self._overslept

    def close(self) -> None:
        """Ends the thread. Does not leave the group."""
        with self._changed:
            self._closed = True
            self._member = None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        link: CoordinatorLink | None = None
        try:
            while (member := self._next_due()) is not None:
                link = link or CoordinatorLink(self._cluster, member.group_id)
                if time.monotonic() - self._polled_at > self._max_poll_interval_s:
                    self._leave(link, member)
                else:
                    self._beat(link, member)
        finally:
            if link is not None:
                link.close()
            self._cluster.close()

    def _next_due(self) -> GroupMetadata | None:
        """The member whose heartbeat is due, waited for; None: closed."""
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

    def _beat(self, link: CoordinatorLink, member: GroupMetadata) -> None:
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
            self._cluster.close()  # the connection that found the coordinator: not needed until that moves
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
                self._news = code
                if code in ENDS:
                    self._member = None

    def _leave(self, link: CoordinatorLink, member: GroupMetadata) -> None:
        log.warning(
            "group %s: poll() was not called for %g s, so the member leaves and others get its partitions; poll more "
            "often, take fewer records at a time or raise max_poll_interval_s",
            member.group_id,
            self._max_poll_interval_s,
        )
        with self._changed:
            self._overslept = self._member == member
            if self._overslept:
                self._member = None
        if member.instance_id is None:
            try:
                leave(link, member, "poll() was not called in time")
            except (ClientError, KafkaError) as error:
                log.info("leaving group %s: %s", member.group_id, error)


def leave(link: CoordinatorLink, member: GroupMetadata, reason: str, *, timeout_s: float | None = None) -> Any:
    """Tells the coordinator that the member goes. Raises as CoordinatorLink.call does."""
    shape = LEAVE_GROUP.Request
    if link.connection().version_of(LEAVE_GROUP) < 3:  # one member a request, and no static ones
        request = shape(group_id=member.group_id, member_id=member.member_id)
    else:
        # A reason has at most 255 characters (KIP-800).
        leaving = shape.Members(member_id=member.member_id, group_instance_id=member.instance_id, reason=reason[:255])
        request = shape(group_id=member.group_id, members=[leaving])
    return link.call(LEAVE_GROUP, request, timeout_s=timeout_s)
