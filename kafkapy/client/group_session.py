"""A consumer's life in its group: it joins, takes and gives back partitions, commits by itself, and leaves.

Source: Kafka's ConsumerCoordinator (poll, onJoinPrepare, onJoinComplete, onLeavePrepare).
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.client.assigned import AssignedPartitions
from kafkapy.client.assignors import Assignor
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.coordinator_link import CoordinatorLink
from kafkapy.client.errors import ClientError
from kafkapy.client.group_offsets import GroupOffsets
from kafkapy.client.group_types import RebalanceListener
from kafkapy.client.heartbeats import Heartbeats, leave
from kafkapy.client.membership import NO_GENERATION, Membership, Protocols
from kafkapy.client.subscription import (
    Subscription,
    decode_assignment,
    decode_member,
    encode_subscription,
    share_out,
)
from kafkapy.errors import Errors, KafkaError

log = logging.getLogger(__name__)

JOINING_WAIT_S = 0.05  # how long a cooperative member reads on before it looks whether the others are there
LAST_COMMIT_S = 5.0  # how long an automatic commit may hold up a rebalance


class GroupSession:
    """One consumer in one group.

    Attributes:
        assigned: what it reads; changed by `step` and `leave`, which tell the listener.
        cooperative: whether what stays is read on while the group rebalances.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        assignors: Sequence[Assignor],
        *,
        instance_id: str | None,
        session_timeout_s: float,
        heartbeat_interval_s: float,
        max_poll_interval_s: float,
        auto_commit_interval_s: float | None,
        rack: str | None,
    ) -> None:
        self.assigned = AssignedPartitions()
        self.cooperative = all(one.cooperative for one in assignors)
        self.auto_commit_interval_s = auto_commit_interval_s
        self.link = CoordinatorLink(cluster, group_id)
        self._heartbeats = Heartbeats(cluster, interval_s=heartbeat_interval_s, max_poll_interval_s=max_poll_interval_s)
        self.membership = Membership(
            self.link,
            self._heartbeats,
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=max_poll_interval_s,
            lead=self._lead,
        )
        self.offsets = GroupOffsets(self.link, self.membership)
        self.subscription: Subscription | None = None
        self._listener = RebalanceListener()
        self._assignors = assignors
        self._rack = rack
        self._prepared = False  # what had to be let go of for the join under way was
        self._last_assigned: tuple[list[TopicPartition] | None, int] = (None, NO_GENERATION)  # for assignors
        self._commit_at = 0.0

    @property
    def is_stable(self) -> bool:
        """Whether what is assigned is this member's, and no rebalance is under way or due."""
        return not self.membership.in_rebalance and not self.membership.wants_to_join

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """In place of what was subscribed before, from the next `step` on."""
        self.subscription = subscription
        self._listener = listener
        self.membership.must_join("the subscription has changed")

    def step(self, deadline: float) -> bool:
        """Does what is due, waiting up to `deadline` for the other members; whether the membership is stable.

        Raises:
            GroupFailed: the coordinator refuses this consumer.
            ConnectionFailed: nobody can be asked at the moment.
        """
        assert self.subscription is not None
        membership, subscription = self.membership, self.subscription
        self._heartbeats.polled()
        while self.link.take():
            pass
        self._hear()
        if subscription.is_due and subscription.look() and membership.is_member:
            membership.must_join("topics or partitions have come or gone")
        if membership.wants_to_join:
            self._prepare(subscription)
            membership.join(self._protocols(subscription))
        if membership.in_rebalance:
            left = max(0.0, deadline - time.monotonic())
            if self.cooperative and self.assigned.states:
                left = 0.0 if self.assigned.to_fetch(time.monotonic()) else min(left, JOINING_WAIT_S)
            self.link.take(left)
            membership.check_patience()
        if membership.assignment is not None:
            self._take_assignment(subscription, membership.assignment)
        if self.is_stable:
            self._commit_if_due()
        return self.is_stable

    def leave(self, reason: str, timeout_s: float | None = None) -> None:
        """Gives everything back and goes; a static member keeps its place until the session ends."""
        if self.membership.in_rebalance:
            self.link.forget()  # what is asked now would be answered after the join
        self._commit_last()
        held, member = list(self.assigned.states), self.membership.member
        is_member = self.membership.is_member and not self._heartbeats.overslept()
        try:
            if held and is_member:
                self._listener.on_revoked(held)
            elif held:
                self._listener.on_lost(held)
        finally:
            self.assigned.keep(())
            self.membership.end()
            self.subscription = None
            self._prepared = False
            if member.member_id and member.instance_id is None:
                try:
                    leave(self.link, member, reason, timeout_s=timeout_s)
                except (ClientError, KafkaError) as error:
                    log.info("leaving group %s: %s", self.link.key, error)

    def close(self) -> None:
        """Ends the thread and the connection; does not leave."""
        self._heartbeats.close()
        self.link.close()

    def _hear(self) -> None:
        """What the heartbeats' thread has to tell."""
        if self._heartbeats.overslept():
            self.membership.lost("poll() was not called in time")
        elif (code := self._heartbeats.news()) and not self.membership.in_rebalance:
            if code == Errors.REBALANCE_IN_PROGRESS:
                self.membership.must_join("the group rebalances")
            else:
                self.membership.refused("stay in", code)

    def _prepare(self, subscription: Subscription) -> None:
        """Lets go of what must be let go of before the member joins; once for each rebalance."""
        if self._prepared:
            return
        self._prepared = True
        held = list(self.assigned.states)
        if not self.membership.is_member:
            self.assigned.keep(())
            if held:
                self._listener.on_lost(held)
            return
        self._commit_last()
        gone = [one for one in held if not self.cooperative or not subscription.covers(one[0])]
        try:
            if gone:
                self._listener.on_revoked(gone)
        finally:
            self.assigned.keep(set(held).difference(gone))

    def _protocols(self, subscription: Subscription) -> Protocols:
        owned = list(self.assigned.states)
        generation = self.membership.member.generation
        return [
            (
                one.name,
                encode_subscription(
                    subscription.topics, one.user_data(*self._last_assigned), owned, generation, self._rack
                ),
            )
            for one in self._assignors
        ]

    def _lead(self, assignor: str, members: Sequence[Any]) -> dict[str, bytes]:
        subscription = self.subscription
        assert subscription is not None

        def counts_of(topics: frozenset[str]) -> Mapping[str, int]:
            subscription.lead(topics)
            return subscription.counts

        return share_out(assignor, self._assignors, [decode_member(one) for one in members], counts_of)

    def _take_assignment(self, subscription: Subscription, data: bytes) -> None:
        membership = self.membership
        membership.assignment = None
        self._prepared = False
        if not membership.is_leader:
            subscription.follow()
        try:
            assigned = decode_assignment(data)
        except KafkaError:
            # What it read before may be somebody else's by now: it is given up with the join.
            membership.must_join("its assignment cannot be read")
            raise
        if not all(subscription.covers(topic) for topic, _ in assigned):
            membership.must_join("the assignment does not fit the subscription any more")
            return
        kept = set(self.assigned.states).intersection(assigned)
        added = [one for one in assigned if one not in kept]
        revoked = [one for one in self.assigned.states if one not in kept]
        self._last_assigned = assigned, membership.member.generation
        try:
            if revoked:
                # Somebody else gets these in the rebalance that follows.
                self._commit_last()
                self._listener.on_revoked(revoked)
        finally:
            if revoked:
                membership.must_join("it has let go of partitions")
            self.assigned.keep(kept)
            self.assigned.add(added)
        self._listener.on_assigned(added)
        if self.auto_commit_interval_s is not None:
            self._commit_at = time.monotonic() + self.auto_commit_interval_s

    def _commit_if_due(self) -> None:
        if self.auto_commit_interval_s is None or time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + self.auto_commit_interval_s
        positions = self.assigned.committable()
        if positions:
            try:
                self.offsets.send(positions, self._committed)
            except (ClientError, KafkaError) as error:
                self._committed(error)

    def _commit_last(self) -> None:
        """The automatic commit before partitions go."""
        if self.auto_commit_interval_s is None or not self.membership.is_member:
            return
        positions = self.assigned.committable()
        if positions:
            try:
                self.offsets.commit(positions, min(LAST_COMMIT_S, self.link.cluster.timeout_s))
            except (ClientError, KafkaError) as error:
                self._committed(error)

    def _committed(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("group %s: the automatic commit failed: %s", self.link.key, error)
