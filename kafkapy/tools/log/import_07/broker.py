"""Imports logs of Kafka 0.7 into topics of a running cluster."""

from collections import deque
from collections.abc import Mapping
from types import TracebackType

from kafkapy.client.administration.admin import EARLIEST, LATEST, TOPIC, Admin
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ProduceFailed
from kafkapy.client.producing.pending_batch import Delivery
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.import_07.targets import Demand, Writer

# The most bytes that a batch of one record has besides the value.
OVERHEAD = 256
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
_DEFAULT_MAX = 1_048_588


class BrokerTarget:
    """A Target that imports into topics of a running cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)

    def __enter__(self) -> "BrokerTarget":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cluster.close()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        if not self._has(topic) or partition not in self._cluster.topic(topic).partitions:
            return 0, 0
        where = topic, partition
        first, following = (self._admin.offsets({where: at})[where].offset for at in (EARLIEST, LATEST))
        return first, following

    def prepare(self, demands: Mapping[str, Demand]) -> None:
        for topic, demand in demands.items():
            if self._has(topic):
                self._check(topic, demand)
            else:
                settings: dict[str, str | None] = dict(KEEP_ALL)
                if demand.largest + OVERHEAD > _DEFAULT_MAX:
                    settings["max.message.bytes"] = str(demand.largest + OVERHEAD)
                self._admin.create_topics([NewTopic(topic, demand.partitions, configs=settings)])

    def writer(self, topic: str, partition: int, codec: int, next_offset: int) -> Writer:
        return ProducerWriter(self._cluster, topic, partition, codec, next_offset)

    def _has(self, topic: str) -> bool:
        try:
            self._cluster.topic(topic)
        except KafkaError as error:
            if error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        return True

    def _check(self, topic: str, demand: Demand) -> None:
        count = len(self._cluster.topic(topic).partitions)
        if count < demand.partitions:
            raise ToolError(
                f"topic {topic} has too few partitions, {count} where {demand.partitions} are needed: "
                f"kafkapy topics alter {topic} --partitions {demand.partitions}"
            )
        wanted = ["cleanup.policy", "max.message.bytes", "retention.ms"]
        found = {one.name: one.value or "" for one in self._admin.describe_configs(TOPIC, topic, wanted)}
        if "compact" in found["cleanup.policy"]:
            raise ToolError(
                f"topic {topic} is compacted, but messages of Kafka 0.7 have no keys: name another --topic."
            )
        retention = int(found["retention.ms"])
        if retention >= 0 and demand.oldest_ms < SYSTEM_CLOCK.time_ms() - retention:
            raise ToolError(
                f"topic {topic} has retention.ms={retention}, and records as old as these would be deleted at once: "
                f"kafkapy configs alter --topic {topic} --set retention.ms=-1"
            )
        if demand.largest + OVERHEAD > int(found["max.message.bytes"]):
            raise ToolError(
                f"topic {topic} has max.message.bytes={found['max.message.bytes']}, and one message has "
                f"{demand.largest}: kafkapy configs alter --topic {topic} "
                f"--set max.message.bytes={demand.largest + OVERHEAD}"
            )


class ProducerWriter:
    """A Writer that sends records with an idempotent producer, so that a batch that is sent again is stored once."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, codec: int, next_offset: int) -> None:
        self._producer = RecordProducer(cluster, codec=codec)
        self._where = topic, partition
        self._next = next_offset
        self._expected: deque[tuple[Delivery, int]] = deque()

    def append(self, value: bytes, timestamp: int) -> None:
        topic, partition = self._where
        try:
            delivery = self._producer.send(topic, value, partition=partition, timestamp=timestamp)
        except ProduceFailed as error:
            raise ToolError(f"{error}. Run the import again to continue after the stored records.") from error
        if not self._expected or self._expected[-1][0] is not delivery:
            self._expected.append((delivery, self._next))
            self._check()
        self._next += 1

    def flush(self) -> None:
        try:
            self._producer.flush()
        except ProduceFailed as error:
            raise ToolError(f"{error}. Run the import again to continue after the stored records.") from error
        self._check()

    def _check(self) -> None:
        while self._expected and self._expected[0][0].done:
            delivery, expected = self._expected.popleft()
            if delivery.base_offset not in (-1, expected):
                raise ToolError(
                    f"another producer writes to {self._where[0]}-{self._where[1]}: records expected at offset "
                    f"{expected} are at {delivery.base_offset}. Import into a topic that nothing else writes to."
                )
