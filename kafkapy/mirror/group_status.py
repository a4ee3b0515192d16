"""Looks up what a mirror stream without partitions reports: its group's other members and the group's lag."""

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
TIMEOUT_S = 2.0  # the time limit of a lookup, which blocks the polling thread
SHOWN = 3  # the number of members that are named


class GroupStatus:
    """Looks up the members and the lag of a source's group. For one thread.

    It has its own connections, because the member's connections block while the member waits for the group.
    """

    def __init__(self, cluster: Cluster, settings: GroupSource, topics: re.Pattern[str]) -> None:
        self._settings = settings
        self._topics = topics
        self._cluster = cluster.another()
        self._cluster.timeout_s = TIMEOUT_S
        self._next_at = 0.0
        self._found: Waiting | None = None

    def waiting(self, member_id: str) -> Waiting:
        """Return the group's other members and its lag, looked up at most every 5 seconds.

        Args:
            member_id: The id of the member that has no partitions.
        """
        if self._found is None or time.monotonic() >= self._next_at:
            self._found = self._look_up(member_id)
            self._next_at = time.monotonic() + INTERVAL_S
        return self._found

    def close(self) -> None:
        self._cluster.close()

    def _look_up(self, member_id: str) -> Waiting:
        """Look up the group's other members and its lag.

        If a broker cannot answer, log the error, and leave the members empty or the lag None.
        """
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
        """Return the group's lag, summed over all partitions of the mirrored topics.

        Raises ClientError or KafkaError.
        """
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
    """Return a group's lag: the sum of the differences between end offsets and committed offsets.

    A partition without a committed offset counts with all its offsets if the group reads it `from_start`, else as 0.
    Raises ClientError or KafkaError.
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
    """Return a text for display that names other members of the group, or an empty text if there are none.

    If some of the other members own partitions, only these members are named. During a rebalance it is not known which
    members own partitions, so all other members are named.
    """
    others = [one for one in group.members if one.id != member_id]
    owners = [one for one in others if one.partitions]
    names = [f"{one.id} at {one.host}" for one in owners or others]
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    what = "read by" if owners else "other members, of which one may have died:"
    return f"{what} {', '.join(names[:SHOWN])}{more}"
