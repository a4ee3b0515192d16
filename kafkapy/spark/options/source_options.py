"""The checked options of the source; names, defaults and meanings are those of Spark's Kafka source.

Source: KafkaSourceProvider of Spark, "Structured Streaming + Kafka Integration Guide".
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.spark.options.consumer_properties import ConsumerProperties, consumer_properties
from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.limits import LIMIT_OPTIONS, Limit, check_batch_limits, ending_limit, starting_limit
from kafkapy.spark.options.subscription import WAYS, Subscription, subscription

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TRIGGER_OPTIONS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN = (
    *WAYS,
    *LIMIT_OPTIONS,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    *TRIGGER_OPTIONS,
    "includeHeaders",
    "columns",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of the source `kafkapy`.

    Attributes:
        starting, ending: Where the query starts and ends, or None if the user has not said it.
        columns: The columns in the order of the rows.
        max_offsets, min_offsets: The largest and smallest number of offsets in one micro-batch, or None for no limit.
        max_delay_s: How long a micro-batch waits until there are `min_offsets` new offsets.
        poll_timeout_s: How long a task waits for existing records.
        num_retries, retry_interval_s: How often, and at which interval, the driver tries to look up offsets.
        given: The names of the given options in lower case, to check options that are only for batches or for streams.
    """

    consumer: ConsumerProperties
    subscription: Subscription
    starting: Limit | None
    ending: Limit | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    group_id_prefix: str
    poll_timeout_s: float
    num_retries: int
    retry_interval_s: float
    given: frozenset[str]

    def client_id(self, role: str) -> str:
        """Return the client id that the driver (`role` is "driver") or an executor ("executor") sends to brokers."""
        return self.consumer.client_id or f"{self.group_id_prefix}-{role}"

    def check_batch(self) -> None:
        """Raise BadOption if a batch query would start at a partition's latest offset or end at its earliest offset."""
        check_batch_limits(self.starting, self.ending)

    def check_stream(self) -> None:
        """Raise BadOption if an option sets an end, which a streaming query does not have."""
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in self.given:
                raise BadOption(f"{name} is for batch queries: a streaming query has no end")


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the checked options of the source `kafkapy`. Raises BadOption for the first error."""
    options = Options(given, KNOWN, "The source kafkapy")
    most, least = options.integer("maxOffsetsPerTrigger", least=1), options.integer("minOffsetsPerTrigger", least=1)
    if most is not None and least is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, which is {most}")
    return SourceOptions(
        subscription=subscription(options),
        consumer=consumer_properties(options.kafka()),
        starting=starting_limit(options),
        ending=ending_limit(options),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        columns=columns_of(options),
        min_partitions=options.integer("minPartitions", least=1),
        max_records_per_partition=options.integer("maxRecordsPerPartition", least=1),
        max_offsets=most,
        min_offsets=least,
        max_delay_s=options.milliseconds("maxTriggerDelay", 15 * 60_000) / 1000,
        group_id_prefix=options.text("groupIdPrefix") or "spark-kafkapy-source",
        poll_timeout_s=_or(options.integer("kafkaConsumer.pollTimeoutMs"), 120_000) / 1000,
        num_retries=_or(options.integer("fetchOffset.numRetries", least=1), 3),
        retry_interval_s=_or(options.integer("fetchOffset.retryIntervalMs"), 1000) / 1000,
        given=frozenset(name.lower() for name in given),
    )


def columns_of(options: Options) -> tuple[str, ...]:
    """Return the names of the columns that the options `columns` and `includeHeaders` select. Raises BadOption."""
    with_headers = options.boolean("includeHeaders", False)
    names = options.names("columns")
    if names is None:
        return COLUMNS if with_headers else COLUMNS[:-1]
    spelling = {name.lower(): name for name in COLUMNS}
    found = [spelling.get(name.lower(), "") for name in names]
    if not found or "" in found or len(set(found)) < len(found):
        raise BadOption(f"columns is {options.text('columns')!r}: write some of {', '.join(COLUMNS)}, each once")
    if with_headers and "headers" not in found:
        raise BadOption("includeHeaders is true but columns leaves out headers: name it there, or leave out columns")
    return tuple(found)


def _or(number: int | None, default: int) -> int:
    return default if number is None else number
