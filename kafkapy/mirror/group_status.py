"""What a member without partitions reports: the other members of its group, and the group's lag."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.administration.group_admin import GroupAdmin, GroupDescription
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import isolation_level
from kafkapy.errors import KafkaError
from kafkapy.mirror.counts import Waiting
from kafkapy.mirror.source_settings import GroupSource

log = logging.getLogger(__name__)

INTERVAL_S = 5.0  # the interval between two lookups
TIMEOUT_S = 2.0  # for one lookup: the polling thread does it
SHOWN = 3  # the number of members that are named


class GroupStatus:
    """Looks up a group's members and lag. For one thread. Has its own connections: the member's wait for the group."""

    def __init__(self, cluster: Cluster, settings: GroupSource, topics: re.Pattern[str]) -> None:
        self._settings = settings
        self._topics = topics
        self._cluster = cluster.another()
        self._cluster.timeout_s = TIMEOUT_S
        self._next_at = 0.0
        self._found: Waiting | None = None

    def waiting(self, member_id: str) -> Waiting:
        """Return the group's status, looked up again at intervals.

        Args:
            member_id: The member that has no partitions.
        """
        if self._found is None or time.monotonic() >= self._next_at:
            self._found = self._look_up(member_id)
            self._next_at = time.monotonic() + INTERVAL_S
        return self._found

    def close(self) -> None:
        self._cluster.close()

    def _look_up(self, member_id: str) -> Waiting:
        """Look up the group's status."""
        group = self._settings.group_id
        whose, lag = "", None
        try:
            described = GroupAdmin(self._cluster).describe([group])[group]
            if isinstance(described, GroupDescription):
                whose = _others(described, member_id)
            lag = self._lag()
        except (ClientError, KafkaError) as error:
            log.info("%s: the lag of group %s is not known: %s", self._settings.file, group, error)
        return Waiting(f"partitions of group {group}", whose, lag)

    def _lag(self) -> int:
        """Return the group's lag over all partitions of the mirrored topics."""
        admin = Admin(self._cluster)
        partitions: list[TopicPartition] = [
            (topic.name, index)
            for topic in admin.list_topics()
            if not topic.internal and self._topics.search(topic.name)
            for index in topic.partitions
        ]
        isolation = isolation_level(self._settings.isolation)
        committed = GroupAdmin(self._cluster).offsets_of(self._settings.group_id, partitions)
        from_start = self._settings.auto_offset_reset == "earliest"
        return lag_of(admin, partitions, committed, from_start=from_start, isolation=isolation)


def lag_of(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    from_start: bool,
    isolation: int = 0,
) -> int:
    """Return the sum of what is between committed and end offsets. Raises ClientError, KafkaError.

    A partition without a committed offset counts as a whole if the group reads it `from_start`, else not at all.
    """

    def offsets(wanted: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
        found = admin.offsets_now(dict.fromkeys(wanted, at), isolation=isolation)
        return {where: one.offset for where, one in found.items()}

    ends = offsets(partitions, LATEST)
    new = [where for where in partitions if where not in committed]
    starts = offsets(new, EARLIEST) if new and from_start else {}
    at = {**starts, **committed}
    return sum(max(0, end - at.get(where, end)) for where, end in ends.items())


def _others(group: GroupDescription, member_id: str) -> str:
    """Return the other members of the group, for display. During a rebalance it is not known which own partitions."""
    others = [one for one in group.members if one.id != member_id]
    owners = [one for one in others if one.partitions]
    names = [f"{one.id} at {one.host}" for one in owners or others]
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    what = "read by" if owners else "other members, of which one may have died:"
    return f"{what} {', '.join(names[:SHOWN])}{more}"
