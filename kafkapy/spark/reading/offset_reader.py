"""The driver's lookups at the brokers: partitions, their earliest and latest offsets, and the offsets of timestamps.

Source: KafkaOffsetReaderAdmin of Spark.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import Cluster, Topic, TopicPartition
from kafkapy.client.errors import AuthenticationFailed, BadSecuritySettings, ClientError, ConnectionFailed
from kafkapy.client.fetched import isolation_level
from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.limits import AtOffsets, AtTimestamp, Edge, Limit
from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.reading.positions import Positions

log = logging.getLogger("kafkapy.spark")

NO_ID = bytes(16)

T = TypeVar("T")


class OffsetReader:
    """Looks up the partitions that a query reads, and their offsets.

    An OffsetReader is for one thread and not picklable.

    A lookup that fails is tried fetchOffset.numRetries times in total, and then raises ClientError or KafkaError. If a
    broker was reached before, failing connections are retried for kafka.default.api.timeout.ms, so that a query
    survives a restart of the broker.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._isolation = isolation_level(options.consumer.isolation)
        self._cluster = Cluster(
            options.consumer.bootstrap_servers,
            client_id=options.client_id("driver"),
            timeout_s=options.consumer.request_timeout_s,
            security=options.consumer.security,
        )
        self._admin = Admin(self._cluster)
        self._reached = False

    def __enter__(self) -> "OffsetReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def resolved(self, limit: Limit, *, starting: bool) -> Positions:
        """Return the offset in each partition at which the query starts (`starting`) or ends, as `limit` says.

        Raises BadOption if the limit names single partitions but not exactly the existing ones, or if it has a time
        after the last record of a partition.
        """
        return self._retried(lambda: self._resolve(limit, starting))

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the earliest offset of each of these partitions. Partitions that no longer exist are left out."""
        if not partitions:
            return {}

        def ask() -> dict[TopicPartition, int]:
            there, _ = self._partitions(missing_is_error=False)
            return self._edges(set(partitions) & there, EARLIEST)

        return self._retried(ask)

    def latest(self, known: Positions | None = None) -> Positions:
        """Return the latest offset of every partition that the query reads.

        With `known`, the position that the query has reached, a topic may be missing unless failOnDataLoss is set. If
        a partition is missing or ends before its known offset, the lookup is repeated: a broker that has just started,
        or just become the leader, may not have current data, and a partition taken for deleted would be read again
        from its beginning later.
        """

        def ask() -> Positions:
            missing_is_error = known is None or self._options.fail_on_data_loss
            partitions, ids = self._partitions(missing_is_error=missing_is_error)
            return Positions(self._edges(partitions, LATEST), ids)

        found = self._retried(ask)
        for attempt in range(1, self._options.num_retries):
            less = known is not None and [
                where
                for where, offset in known.offsets.items()
                if offset > found.offsets.get(where, -1) and known.same_topic(found, where[0])
            ]
            if not less:
                break
            log.warning("%s had records up to a later offset before; looking again (%d).", listed(less), attempt)
            time.sleep(self._options.retry_interval_s)
            found = self._retried(ask)
        return found

    def have_moved(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return True if the latest offset of any of these partitions differs from `ends`, or if the lookup fails.

        This is the cheapest lookup, because new partitions are not looked for. After a failure, for example because a
        leader has stopped, the caller continues with `latest`, which finds the new leader.
        """
        try:
            return self._edges(ends, LATEST) != ends
        except (ClientError, KafkaError) as error:
            log.info("%s Looking up all partitions.", error)
            return True

    def _resolve(self, limit: Limit, starting: bool) -> Positions:
        """Return the offset in each partition at which the query starts or ends, as `limit` says, without retries."""
        partitions, ids = self._partitions(missing_is_error=True)
        option = "starting" if starting else "ending"
        if isinstance(limit, Edge):
            return Positions(self._edges(partitions, limit.at), ids)
        if isinstance(limit, AtOffsets):
            check_named(f"{option}Offsets", limit.offsets, partitions, "write -1 for latest and -2 for earliest")
            return Positions(self._with_edges(dict(limit.offsets)), ids)
        if limit.all is None:
            check_named(f"{option}OffsetsByTimestamp", limit.each, partitions, "give each of them a time")
        times = dict.fromkeys(partitions, limit.all) if limit.all is not None else dict(limit.each)
        return Positions(self._with_edges(self._at_times(times, limit)), ids)

    def _at_times(self, times: Mapping[TopicPartition, int], limit: AtTimestamp) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record with the timestamp in `times` (ms) or a later one.

        For a partition without such a record, return LATEST, or raise BadOption if `limit` does not allow that.
        """
        offsets = {}
        for where, answer in self._admin.offsets_now(times, isolation=self._isolation).items():
            if answer.offset < 0 and not limit.or_latest:
                raise BadOption(
                    f"{where[0]}-{where[1]} has no record at or after the time {times[where]} (ms), where the query is "
                    "to start; with startingOffsetsByTimestampStrategy=latest it would start at the end"
                )
            offsets[where] = answer.offset if answer.offset >= 0 else LATEST
        return offsets

    def _with_edges(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `offsets` with EARLIEST and LATEST replaced by the actual offsets of the partitions."""
        for edge in (EARLIEST, LATEST):
            offsets |= self._edges([where for where, offset in offsets.items() if offset == edge], edge)
        return offsets

    def _edges(self, partitions: Iterable[TopicPartition], edge: int) -> dict[TopicPartition, int]:
        """Return the earliest or latest offset of each partition. `edge` is EARLIEST or LATEST."""
        wanted = dict.fromkeys(sorted(partitions), edge)
        found = self._admin.offsets_now(wanted, isolation=self._isolation) if wanted else {}
        return {where: found[where].offset for where in wanted}

    def _partitions(self, *, missing_is_error: bool) -> tuple[set[TopicPartition], dict[str, str]]:
        """Return the partitions that the query reads, and the topic ids by topic name, in hex.

        Raises KafkaError for a topic with an error. A topic or assigned partition that does not exist is an error only
        with `missing_is_error`, and is left out otherwise.
        """
        subscription = self._options.subscription
        self._cluster.refresh(subscription.named_topics)
        found: set[TopicPartition] = set()
        ids = {}
        for name in subscription.named_topics or sorted(self._cluster.topics):
            topic = self._cluster.topics.get(name)
            if topic is None or not subscription.wants_topic(name, topic.internal):
                continue
            if topic.error_code:
                if topic.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION and not missing_is_error:
                    continue
                known = topic.error_code != Errors.UNKNOWN_TOPIC_OR_PARTITION
                reason = message_of(topic.error_code) if known else "the broker has no such topic; create it first"
                raise KafkaError(topic.error_code, f"topic {name!r}: {reason}")
            found.update(where for where in _of(topic) if subscription.wants(where))
            if topic.topic_id != NO_ID:
                ids[name] = topic.topic_id.hex()
        gone = set(subscription.assigned) - found
        if gone and missing_is_error:
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION, f"assign names {listed(gone)}: there is no such partition"
            )
        return found, ids

    def _retried(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, a function that makes a lookup at the brokers.

        If the call fails, it is repeated as the docstring of the class describes. The last error is raised.
        """
        deadline = time.monotonic() + self._options.consumer.api_timeout_s
        attempt = 1
        while True:
            try:
                answer = ask()
                self._reached = True
                return answer
            except (AuthenticationFailed, BadSecuritySettings):
                raise
            except (ClientError, KafkaError) as error:
                waits = self._reached and isinstance(error, ConnectionFailed) and time.monotonic() < deadline
                if attempt >= self._options.num_retries and not waits:
                    raise
                log.warning("%s Retrying (%d).", error, attempt)
            attempt += 1
            time.sleep(self._options.retry_interval_s)


def check_named(
    option: str, given: Mapping[TopicPartition, int], there: Collection[TopicPartition], advice: str
) -> None:
    """Raise BadOption unless the partitions that an option names are exactly the existing partitions, `there`.

    `advice` is for the message: it says what to write for partitions that the option does not name.
    """
    missing, unknown = set(there) - set(given), set(given) - set(there)
    if missing:
        raise BadOption(f"{option} does not name {listed(missing)}, but has to name every partition: {advice}")
    if unknown:
        raise BadOption(f"{option} names {listed(unknown)}, which the query does not read")


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of up to ten partitions, and the number of further partitions, as text for messages."""
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _of(topic: Topic) -> list[TopicPartition]:
    return [(topic.name, index) for index in topic.partitions]
