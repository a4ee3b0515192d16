"""The decision topic, which records the transactions that belong to an epoch before any of them is committed.

The topic is compacted and has one partition. A record's key is the query and the epoch; its value lists the
transactions and says whether all have been committed ("done"). The decision of an epoch deletes the record of the last
epoch before it that had rows, so that a streaming query leaves one record. A batch query leaves a record ("done", too)
only if it was aborted. Records are written in transactions of the query's driver (epochs.py) and read with
read_committed, so writes of a fenced driver are never seen.

Queries share the topic. With read_committed, a reader stops at the first open transaction, also at that of another
query: if the other query's driver has stopped within a transaction, later records are not visible until the
transaction times out. A task may miss a decision because of this (the driver then aborts the task's transaction). A
driver must not miss a decision, so it waits.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafkapy.client.administration.admin import EARLIEST, LATEST, TOPIC, Admin
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.client.fetching.consumer import Consumer
from kafkapy.errors import Errors, KafkaError
from kafkapy.spark.options.given import BadOption

VERSION = 1
REPLICAS = 3  # if there are as many brokers: a lost decision would leave its epoch partly committed
OTHERS_S = 0.01  # retry interval while another driver's transaction is open, usually for milliseconds
CONFIGS = {
    "cleanup.policy": "compact",
    # Workers read the topic from its beginning, and the active segment is never compacted.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # Enough for about 100,000 tasks.
    "max.message.bytes": str(10 * 1024 * 1024),
}


class DecisionsUnusable(BadOption):
    """The error for a decision topic that cannot be used as such. The message says why, and what to do."""


class Share(NamedTuple):
    """One task's part of an epoch: the task's open transaction, and the number of rows in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: int


@dataclass(frozen=True)
class Decision:
    """The driver's decision to commit an epoch of a query: the transactions that belong to the epoch.

    `done` is True when all of these transactions have been committed, or when a batch was aborted.
    """

    query: str
    epoch: int
    shares: tuple[Share, ...] = ()
    done: bool = False


def key_of(query: str, epoch: int) -> bytes:
    """Return the key of an epoch's record in the decision topic."""
    return f"{query}/{epoch}".encode()


def value_of(decision: Decision) -> bytes:
    """Return the value of a decision's record in the decision topic.

    The value lists no transactions if the epoch is done.
    """
    state = "done" if decision.done else "decided"
    transactions = [] if decision.done else [list(share) for share in decision.shares]
    return json.dumps({"version": VERSION, "state": state, "transactions": transactions}).encode()


def decision_of(key: bytes, value: bytes | None) -> Decision | None:
    """Return the decision in a record of the decision topic, or None if the record is a tombstone.

    Raises ValueError, KeyError or TypeError for a record that is no decision.
    """
    query, slash, epoch = key.decode().rpartition("/")
    if not slash:
        raise ValueError("its key is not that of a decision")
    if value is None:
        return None
    fields: dict[str, Any] = json.loads(value)
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']}, written by a newer kafkapy")
    shares = tuple(Share(*each) for each in fields["transactions"])
    return Decision(query, int(epoch), shares, {"done": True, "decided": False}[fields["state"]])


class Decisions:
    """A reader of the decision topic, which keeps the last decision of each query.

    `refresh` and `read_all` read the records that are new since the last call.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(cluster, isolation="read_committed", out_of_range="earliest", max_wait_ms=100)
        self._latest: dict[str, Decision] = {}
        self._assigned = False

    def refresh(self) -> None:
        """Read the new records of the decision topic.

        Raises ClientError, KafkaError, and DecisionsUnusable for a record that is no decision.
        """
        if not self._assigned:
            self._consumer.assign([(self._topic, 0)], at=EARLIEST)
            self._assigned = True
        for record in self._consumer.records():
            try:
                self._take(record.key or b"", record.value)
            except (ValueError, KeyError, TypeError) as reason:
                raise DecisionsUnusable(
                    f"the record at offset {record.offset} of {self._topic} is not a decision of this sink ({reason}); "
                    "set the option decisionTopic to a topic that has no other writers"
                ) from None

    def read_all(self, limit_s: float) -> None:
        """Read all records that exist in the decision topic now.

        Wait until other drivers' open transactions have ended.

        Raises the errors of `refresh`, and DecisionsUnusable if this takes longer than `limit_s`.
        """
        where = self._topic, 0
        end = Admin(self._consumer.cluster).offsets({where: LATEST})[where].offset
        deadline = time.monotonic() + limit_s
        self.refresh()
        while (reached := self._consumer.positions[where]) < end:
            if time.monotonic() >= deadline:
                raise DecisionsUnusable(
                    f"the decision topic {self._topic!r} can be read up to offset {reached} and has records up to "
                    f"{end}: a transaction of another query's driver has been open there for {limit_s:g} s; kafkapy "
                    "transactions find-hanging shows whether its coordinator will end it"
                )
            time.sleep(OTHERS_S)
            self.refresh()

    def latest(self, query: str) -> Decision | None:
        """Return the last decision of a query, or None if the query has none."""
        return self._latest.get(query)

    def of(self, query: str, epoch: int) -> Decision | None:
        """Return the driver's decision to commit an epoch, or None if the driver has not decided that yet.

        An epoch before the query's last decided epoch is done, so its decision lists no transactions.
        """
        latest = self._latest.get(query)
        if latest is None or latest.epoch < epoch:
            return None
        return latest if latest.epoch == epoch else Decision(query, epoch, done=True)

    def _take(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the decision topic to the known decisions."""
        query, _, epoch = key.decode().rpartition("/")
        decision = decision_of(key, value)
        latest = self._latest.get(query)
        if decision is None:
            if latest is not None and latest.epoch == int(epoch):
                del self._latest[query]
        elif latest is None or latest.epoch <= decision.epoch:
            # The transactions of a done epoch are not needed. If an epoch was decided twice, the later decision counts.
            self._latest[query] = replace(decision, shares=()) if decision.done else decision


def ensure_decision_topic(cluster: Cluster, topic: str) -> None:
    """Create the decision topic if it does not exist. If it exists, check its settings.

    Raises:
        DecisionsUnusable: The topic exists and has wrong settings.
        KafkaError, ClientError: The topic cannot be created, or no broker can be reached.
    """
    admin = Admin(cluster)
    try:
        found = admin.describe_topic(topic)
    except KafkaError as error:
        if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        try:
            admin.create_topics([new_decision_topic(topic, brokers=len(cluster.brokers))])
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS:  # another driver has created the topic
                raise
        found = cluster.topic(topic, refresh=True, wait_for_leaders=True)
    _check(topic, len(found.partitions), _policies(admin, topic))


def new_decision_topic(topic: str, *, brokers: int) -> NewTopic:
    """Return the definition of the decision topic for a cluster with `brokers` brokers.

    With three brokers or more, at least two replicas must store a decision before it is acknowledged.
    """
    safe = {"min.insync.replicas": "2"} if brokers >= REPLICAS else {}
    return NewTopic(topic, 1, min(REPLICAS, brokers), CONFIGS | safe)


def _policies(admin: Admin, topic: str) -> Iterable[str] | None:
    """Return the cleanup policies of a topic, or None if its configuration cannot be read."""
    try:
        (entry,) = admin.describe_configs(TOPIC, topic, ["cleanup.policy"])
    except (KafkaError, ClientError, ValueError):
        return None
    return (entry.value or "").split(",")


def _check(topic: str, partitions: int, policies: Iterable[str] | None) -> None:
    """Raise DecisionsUnusable if the decision topic has several partitions, or another cleanup policy than compact."""
    if partitions != 1:
        raise DecisionsUnusable(
            f"the decision topic {topic!r} has {partitions} partitions and must have 1; set the option decisionTopic "
            "to another name, which is created if it does not exist"
        )
    if policies is not None and list(policies) != ["compact"]:
        raise DecisionsUnusable(
            f"the decision topic {topic!r} has cleanup.policy={','.join(policies)}, which would delete decisions; set "
            "it to compact, or set the option decisionTopic to another name"
        )
