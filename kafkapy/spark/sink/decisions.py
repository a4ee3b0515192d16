"""The decision topic: which transactions make an epoch of a query, written before any of them is committed.

One partition, compacted. A record's key is the query and the epoch; its value lists the transactions and says whether
all have been committed ("done"). When an epoch is done the record of the one before it is deleted, so that a query
leaves one record. Everything is written in transactions of the query's driver (epochs.py) and read committed: what a
fenced driver tried to write is never seen.

Queries share the topic. A reader of committed records stops before the first transaction that is open, whosever it is:
where another query's driver has died in the middle of one, what lies behind it is not seen until that has timed out. A
task may miss a decision so (it writes what its driver then aborts); a driver must not, and waits.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafkapy.client.admin import EARLIEST, LATEST, TOPIC, Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.consumer import Consumer
from kafkapy.client.descriptions import NewTopic
from kafkapy.client.errors import ClientError
from kafkapy.errors import Errors, KafkaError
from kafkapy.spark.options.given import BadOption

VERSION = 1
REPLICAS = 3  # where there are so many brokers: a decision that is lost tears its epoch
OTHERS_S = 0.01  # the transaction of another query's driver is open: that takes milliseconds, unless it has died
CONFIGS = {
    "cleanup.policy": "compact",
    # Workers read it from its beginning, and the last segment is never compacted.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # Of about 100,000 tasks.
    "max.message.bytes": str(10 * 1024 * 1024),
}


class DecisionsUnusable(BadOption):
    """The decision topic is not one; the text says what to do."""


class Share(NamedTuple):
    """What one task wrote: its transaction, and how many rows are in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: int


@dataclass(frozen=True)
class Decision:
    query: str
    epoch: int
    shares: tuple[Share, ...] = ()
    done: bool = False


def key_of(query: str, epoch: int) -> bytes:
    return f"{query}/{epoch}".encode()


def value_of(decision: Decision) -> bytes:
    """A decision that is done need not say what it consisted of."""
    state = "done" if decision.done else "decided"
    transactions = [] if decision.done else [list(share) for share in decision.shares]
    return json.dumps({"version": VERSION, "state": state, "transactions": transactions}).encode()


def decision_of(key: bytes, value: bytes | None) -> Decision | None:
    """None for the record that deletes one; raises ValueError for what is no decision."""
    query, slash, epoch = key.decode().rpartition("/")
    if not slash:
        raise ValueError("no key of a decision")
    if value is None:
        return None
    fields: dict[str, Any] = json.loads(value)
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']}, written by a newer kafkapy")
    shares = tuple(Share(*each) for each in fields["transactions"])
    return Decision(query, int(epoch), shares, {"done": True, "decided": False}[fields["state"]])


class Decisions:
    """What the decision topic says, as of the last `refresh` or `read_all`, which read only what is new."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(cluster, isolation="read_committed", out_of_range="earliest", max_wait_ms=100)
        self._latest: dict[str, Decision] = {}
        self._assigned = False

    def refresh(self) -> None:
        """Raises ClientError, KafkaError, and DecisionsUnusable for records of somebody else."""
        if not self._assigned:
            self._consumer.assign([(self._topic, 0)], at=EARLIEST)
            self._assigned = True
        for record in self._consumer.records():
            try:
                self._take(record.key or b"", record.value)
            except (ValueError, KeyError, TypeError) as reason:
                raise DecisionsUnusable(
                    f"the record at offset {record.offset} of {self._topic} is no decision of this sink ({reason}); "
                    "name a topic that nobody else writes to with the option decisionTopic"
                ) from None

    def read_all(self, limit_s: float) -> None:
        """All that is there now, where others write also what they are about to decide. Raises as `refresh`, and
        DecisionsUnusable where that takes longer than `limit_s`."""
        where = self._topic, 0
        end = Admin(self._consumer.cluster).offsets({where: LATEST})[where].offset
        deadline = time.monotonic() + limit_s
        self.refresh()
        while (reached := self._consumer.positions[where]) < end:
            if time.monotonic() >= deadline:
                raise DecisionsUnusable(
                    f"the decision topic {self._topic!r} can be read up to offset {reached} and has records up to "
                    f"{end}: a transaction of another query's driver has been open there for {limit_s:g} s; kafkapy "
                    "transactions find-hanging says whether anybody is going to end it"
                )
            time.sleep(OTHERS_S)
            self.refresh()

    def latest(self, query: str) -> Decision | None:
        """That of the query's last decided epoch."""
        return self._latest.get(query)

    def of(self, query: str, epoch: int) -> Decision | None:
        """None while it is undecided. Where a later epoch was decided this one has been done before."""
        latest = self._latest.get(query)
        if latest is None or latest.epoch < epoch:
            return None
        return latest if latest.epoch == epoch else Decision(query, epoch, done=True)

    def _take(self, key: bytes, value: bytes | None) -> None:
        query, _, epoch = key.decode().rpartition("/")
        decision = decision_of(key, value)
        latest = self._latest.get(query)
        if decision is None:
            if latest is not None and latest.epoch == int(epoch):
                del self._latest[query]
        elif latest is None or latest.epoch <= decision.epoch:
            # Of one that is done the list may be forgotten, and of one decided twice the newer is what counts.
            self._latest[query] = replace(decision, shares=()) if decision.done else decision


def ensure_decision_topic(cluster: Cluster, topic: str) -> None:
    """Makes the topic where it is missing.

    Raises:
        DecisionsUnusable: it is there and not fit.
        KafkaError, ClientError: it cannot be made, or nobody can be asked.
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
            if error.code != Errors.TOPIC_ALREADY_EXISTS:  # made by another driver meanwhile
                raise
        found = cluster.topic(topic, refresh=True, patient=True)
    _check(topic, len(found.partitions), _policies(admin, topic))


def new_decision_topic(topic: str, *, brokers: int) -> NewTopic:
    """How it is made where there are so many brokers. Two have a decision before it counts, if there are three."""
    safe = {"min.insync.replicas": "2"} if brokers >= REPLICAS else {}
    return NewTopic(topic, 1, min(REPLICAS, brokers), CONFIGS | safe)


def _policies(admin: Admin, topic: str) -> Iterable[str] | None:
    """The topic's cleanup policies; None where we are not told."""
    try:
        (entry,) = admin.describe_configs(TOPIC, topic, ["cleanup.policy"])
    except (KafkaError, ClientError, ValueError):
        return None
    return (entry.value or "").split(",")


def _check(topic: str, partitions: int, policies: Iterable[str] | None) -> None:
    if partitions != 1:
        raise DecisionsUnusable(
            f"the decision topic {topic!r} has {partitions} partitions and must have 1; name another one with the "
            "option decisionTopic, which is made if it is not there"
        )
    if policies is not None and list(policies) != ["compact"]:
        raise DecisionsUnusable(
            f"the decision topic {topic!r} has cleanup.policy={','.join(policies)}, which would forget decisions; set "
            "it to compact, or name another topic with the option decisionTopic"
        )
