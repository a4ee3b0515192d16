"""Throttles: the limits on the bytes per second of replication and of moves between log directories (KIP-73, KIP-113).

A throttle counts the bytes of throttled partitions in samples of `replication.quota.window.size.seconds`, of which it
keeps `replication.quota.window.num`, and compares their rate with the limit. It delays nothing itself: the code that
moves bytes checks before each read if the limit is exceeded. Source: ReplicationQuotaManager, SimpleRate, SampledStat.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kafkapy.runtime.clock import Clock

UNLIMITED = (1 << 63) - 1
_ALL = "*"


class Rate:
    """The rate of bytes per second over the last samples. Any thread may call the methods."""

    def __init__(self, clock: Clock, samples: int, sample_s: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sample_s = sample_s
        self._expiry_s = samples * sample_s
        # The samples, oldest first: (begin in seconds, time of the last record, bytes).
        self._samples: list[tuple[float, float, int]] = []

    def record(self, size: int) -> None:
        """Count `size` bytes in the present sample. The sample is a new one if the last began long enough ago."""
        now = self._clock.monotonic()
        with self._lock:
            self._expire(now)
            if self._samples and now - self._samples[-1][0] < self._sample_s:
                began, _, before = self._samples[-1]
                self._samples[-1] = (began, now, before + size)
            else:
                self._samples.append((now, now, size))

    def value(self) -> float:
        """Return the bytes per second since the oldest sample began; the first sample counts as complete."""
        now = self._clock.monotonic()
        with self._lock:
            self._expire(now)
            if not self._samples:
                return 0.0
            return sum(size for _, _, size in self._samples) / max(now - self._samples[0][0], self._sample_s)

    def _expire(self, now: float) -> None:
        # A sample that overlaps the window is kept as a whole, even if it began before.
        self._samples = [one for one in self._samples if now - one[1] < self._expiry_s]


class Throttle:
    """A limit on the bytes per second of some partitions. Any thread may call the methods; `is_throttled` takes no
    lock.
    """

    def __init__(self, clock: Clock, *, samples: int = 11, sample_s: float = 1) -> None:
        self.limit = UNLIMITED  # bytes per second; may be assigned at any time
        self._rate = Rate(clock, samples, sample_s)
        self._partitions: dict[str, frozenset[int] | None] = {}  # by topic; None: all partitions

    def set_topic(self, topic: str, replicas: Sequence[str], broker_id: int) -> None:
        """Set the throttled partitions of a topic: a list of PARTITION:BROKER of which those of `broker_id` count, or
        `*` for all.
        """
        if "".join(replicas) == _ALL:
            self._partitions[topic] = None
            return
        pairs = (pair.split(":") for pair in replicas if pair)
        mine = frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
        if mine:
            self._partitions[topic] = mine
        else:
            self._partitions.pop(topic, None)

    @property
    def is_idle(self) -> bool:
        """Return True if no partition is throttled, so that `is_throttled` is False for all of them."""
        return not self._partitions

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Return True if the limit applies to the partition."""
        partitions = self._partitions.get(topic, frozenset())
        return partitions is None or partition in partitions

    def record(self, size: int) -> None:
        """Count `size` bytes of a throttled partition that were moved, even if the limit is exceeded."""
        self._rate.record(size)

    def is_exceeded(self) -> bool:
        """Return True if the rate is above the limit: no more bytes of throttled partitions should be moved now."""
        return self.limit < UNLIMITED and self._rate.value() > self.limit

    def rate(self) -> float:
        """Return the present bytes per second of the throttled partitions. For the metrics."""
        return self._rate.value()


class ReplicationThrottles:
    """The three throttles of a broker: of what it sends to followers as `leader`, of what it fetches as `follower`, and
    of what it moves between its `log_dirs`.
    """

    def __init__(
        self, clock: Clock, *, samples: int, sample_s: float, log_dir_samples: int, log_dir_sample_s: float
    ) -> None:
        self.leader = Throttle(clock, samples=samples, sample_s=sample_s)
        self.follower = Throttle(clock, samples=samples, sample_s=sample_s)
        self.log_dirs = Throttle(clock, samples=log_dir_samples, sample_s=log_dir_sample_s)

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Set the limits by the names of the settings. A name that is missing means no limit."""
        self.leader.limit = limits.get("leader.replication.throttled.rate", UNLIMITED)
        self.follower.limit = limits.get("follower.replication.throttled.rate", UNLIMITED)
        self.log_dirs.limit = limits.get("replica.alter.log.dirs.io.max.bytes.per.second", UNLIMITED)

    def set_topic(self, topic: str, leader: Sequence[str], follower: Sequence[str], broker_id: int) -> None:
        """Set the throttled partitions of a topic, from its settings `leader.replication.throttled.replicas` and
        `follower.replication.throttled.replicas`.
        """
        self.leader.set_topic(topic, leader, broker_id)
        self.follower.set_topic(topic, follower, broker_id)
