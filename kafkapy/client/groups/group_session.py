"""A consumer's session in its group: joining, assignment and revocation of partitions, auto-commit, leaving.

Source: Kafka's ConsumerCoordinator (poll, onJoinPrepare, onJoinComplete, onLeavePrepare).
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetching.assigned import AssignedPartitions
from kafkapy.client.groups.assignors import Assignor
from kafkapy.client.groups.coordinator_link import CoordinatorLink
from kafkapy.client.groups.group_offsets import GroupOffsets
from kafkapy.client.groups.group_types import RebalanceListener
from kafkapy.client.groups.heartbeats import Heartbeats, leave
from kafkapy.client.groups.membership import NO_GENERATION, Membership, Protocols
from kafkapy.client.groups.subscription import (
    Subscription,
    assign_partitions,
    decode_assignment,
    decode_member,
    encode_subscription,
)
from kafkapy.errors import Errors, KafkaError

log = logging.getLogger(__name__)

JOINING_WAIT_S = 0.05  # how long a cooperative member fetches during a rebalance before it looks for responses
LAST_COMMIT_S = 5.0  # how long an auto-commit may delay a rebalance


class GroupSession:
    """One consumer's session in one group, from the first join until the consumer leaves.

    Attributes:
        assigned: The assigned partitions. `step` and `leave` change them and call the rebalance listener.
        cooperative: True if all assignors are cooperative: the member then keeps its partitions while it rejoins, and
            can continue to read them.
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
        self._prepared = False  # True once the partitions to give up for the current rebalance are revoked
        self._last_assigned: tuple[list[TopicPartition] | None, int] = (None, NO_GENERATION)  # for user data
        self._commit_at = 0.0

    @property
    def is_stable(self) -> bool:
        """True if this member has its assignment, and no rebalance is in progress or due."""
        return not self.membership.in_rebalance and not self.membership.wants_to_join

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Replace the subscription and the listener. The next `step` joins the group with the new subscription."""
        self.subscription = subscription
        self._listener = listener
        self.membership.must_join("the subscription has changed")

    def step(self, deadline: float) -> bool:
        """Do all work for the group that is due, and return True if the membership is stable afterwards.

        This handles responses, refreshes metadata, joins the group, revokes and assigns partitions, and auto-commits.
        During a rebalance, it waits for the other members, but not longer than until `deadline` (time.monotonic).

        Raises:
            GroupFailed: The coordinator refuses this consumer.
            ConnectionFailed: No broker can be reached at the moment.
        """
        assert self.subscription is not None
        membership, subscription = self.membership, self.subscription
        self._heartbeats.polled()
        while self.link.take():
            pass
        self._check_heartbeats()
        self._take_assignment(subscription)  # before the next JoinGroup, which says what this member owns
        if subscription.is_due and subscription.refresh() and membership.is_member:
            membership.must_join("topics or partitions have come or gone")
        if membership.wants_to_join:
            self._prepare(subscription)
            membership.join(self._protocols(subscription))
        if membership.in_rebalance:
            left = max(0.0, deadline - time.monotonic())
            if self.cooperative and self.assigned.states:
                left = 0.0 if self.assigned.to_fetch(time.monotonic()) else min(left, JOINING_WAIT_S)
            self.link.take(left)
            membership.give_up_if_overdue()
        self._take_assignment(subscription)
        self._drop_lost()
        if self.is_stable:
            self._commit_if_due()
        return self.is_stable

    def leave(self, reason: str, timeout_s: float | None = None) -> None:
        """Auto-commit, give up all partitions and leave the group.

        A static member stays in it until its session expires. `reason` is sent to the coordinator. Errors of the
        LeaveGroup request are only logged.
        """
        if self.membership.in_rebalance:
            self.link.forget()  # a request on this connection would be answered only after the JoinGroup
        self._commit_last()
        held, member = list(self.assigned.states), self.membership.member
        is_member = self.membership.is_member and not self._heartbeats.poll_timed_out()
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
        """Stop the heartbeat thread and close the connection to the coordinator. Does not leave the group."""
        self._heartbeats.close()
        self.link.close()

    def _check_heartbeats(self) -> None:
        """Act on a poll time-out or an error code that the heartbeat thread has recorded.

        Both may make this member rejoin the group. Raise GroupFailed for an error code that retries do not help.
        """
        if self._heartbeats.poll_timed_out():
            self.membership.lost("poll() was not called in time")
        elif (code := self._heartbeats.error_code()) and not self.membership.in_rebalance:
            if code == Errors.REBALANCE_IN_PROGRESS:
                self.membership.must_join("the group rebalances")
            else:
                self.membership.refused("stay in", code)

    def _prepare(self, subscription: Subscription) -> None:
        """Auto-commit, and revoke the partitions that this member has to give up before it rejoins.

        This happens only once for each rebalance.
        """
        if not self._prepared:
            self._prepared = True
            self._commit_last()  # may find that this member has lost its membership
            if self.membership.is_member:
                self._revoke(subscription)
        self._drop_lost()

    def _revoke(self, subscription: Subscription) -> None:
        """Revoke all partitions.

        If the assignors are cooperative, revoke only the partitions of topics no longer subscribed.
        """
        held = list(self.assigned.states)
        gone = [one for one in held if not self.cooperative or not subscription.covers(one[0])]
        try:
            if gone:
                self._listener.on_revoked(gone)
        finally:
            self.assigned.keep(set(held).difference(gone))

    def _drop_lost(self) -> None:
        """Drop all assigned partitions if this consumer is not a member any more, as other members may own them by now.

        The membership can be lost at any point of a rebalance, even after `_prepare` has let a cooperative member keep
        its partitions.
        """
        held = list(self.assigned.states)
        if held and not self.membership.is_member:
            self.assigned.keep(())
            self._listener.on_lost(held)

    def _protocols(self, subscription: Subscription) -> Protocols:
        """Return the protocols for JoinGroup: each assignor's name with this member's encoded subscription."""
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
        """Run the assignor with this name over all members, as the group's leader.

        Return each member's encoded assignment.
        """
        subscription = self.subscription
        assert subscription is not None

        def counts_of(topics: frozenset[str]) -> Mapping[str, int]:
            subscription.watch_group_topics(topics)
            return subscription.counts

        return assign_partitions(assignor, self._assignors, [decode_member(one) for one in members], counts_of)

    def _take_assignment(self, subscription: Subscription) -> None:
        """If a SyncGroup response has brought an assignment, replace the assigned partitions, and call the rebalance
        listener.

        Raise KafkaError if the assignment is malformed. In this case, and if it does not match the subscription, this
        member rejoins the group.
        """
        membership = self.membership
        if membership.assignment is None:
            return
        data, membership.assignment = membership.assignment, None
        self._prepared = False
        if not membership.is_leader:
            subscription.watch_own_topics()
        try:
            assigned = decode_assignment(data)
        except KafkaError:
            # Other members may own this member's partitions by now: rejoining gives them up.
            membership.must_join("the assignment cannot be decoded")
            raise
        if not all(subscription.covers(topic) for topic, _ in assigned):
            membership.must_join("the assignment does not match the subscription any more")
            return
        kept = set(self.assigned.states).intersection(assigned)
        added = [one for one in assigned if one not in kept]
        revoked = [one for one in self.assigned.states if one not in kept]
        self._last_assigned = assigned, membership.member.generation
        if revoked:
            self._commit_last()
            if not membership.is_member:
                return  # the commit's error says that this assignment is outdated; `step` drops the partitions
        try:
            if revoked:
                # The follow-up rebalance assigns these to other members.
                self._listener.on_revoked(revoked)
        finally:
            if revoked:
                membership.must_join("it has revoked partitions")
            self.assigned.keep(kept)
            self.assigned.add(added)
        self._listener.on_assigned(added)
        if self.auto_commit_interval_s is not None:
            self._commit_at = time.monotonic() + self.auto_commit_interval_s

    def _commit_if_due(self) -> None:
        """Auto-commit without waiting for the response, if the auto-commit interval has passed."""
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
        """Auto-commit the positions before partitions are given up, and wait for the response.

        An error is only logged.
        """
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
