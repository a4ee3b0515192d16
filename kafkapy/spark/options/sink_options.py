"""The options of the sink `kafkapy`."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.producer_properties import ProducerProperties, producer_properties

DELIVERIES = ("at-least-once", "exactly-once")
ON_LOST = ("fail", "skip")
KNOWN = (
    "topic",
    "tombstones",
    "delivery",
    "decisionTopic",
    "transactionalIdPrefix",
    "onLostTransactions",
    "includeHeaders",
)
OF_SPARK = ("checkpointLocation", "queryName", "path")  # options of Spark itself, which it passes to every sink

DECISION_TOPIC = "kafkapy-spark-decisions"
ID_PREFIX = "kafkapy-spark"


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of the sink, which are sent to the workers.

    Attributes:
        producer: The options `kafka.*`.
        topic: The topic of all rows, or None if the column `topic` of each row names it.
        tombstones: True to write tombstones if the rows have no column `value`, False to refuse such rows.
        exactly_once: True if the option `delivery` is exactly-once.
        decision_topic: The topic that records which transactions belong to an epoch.
        id_prefix: The prefix of all transactional ids.
        skip_lost: Continue without the rows of transactions that timed out after it was decided to commit their epoch.
    """

    producer: ProducerProperties
    topic: str | None
    tombstones: bool
    exactly_once: bool
    decision_topic: str
    id_prefix: str
    skip_lost: bool


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the checked options of the sink. Raises BadOption for the first error."""
    options = Options(given, (*KNOWN, *OF_SPARK), "the sink kafkapy")
    options.boolean("includeHeaders", False)  # no effect: headers are written if there is a column, as by Spark's sink
    producer = producer_properties(options.kafka())
    exactly_once = options.word("delivery", DELIVERIES, DELIVERIES[0]) == DELIVERIES[1]
    if exactly_once and not (producer.acks == -1 and producer.idempotent):
        raise BadOption("delivery is exactly-once, which needs kafka.acks=all and kafka.enable.idempotence=true")
    topic = options.text("topic")
    if topic == "":
        raise BadOption("topic is empty: name one, or leave out the option and fill the column topic")
    return SinkOptions(
        producer=producer,
        topic=topic,
        tombstones=options.boolean("tombstones", False),
        exactly_once=exactly_once,
        decision_topic=_name(options, "decisionTopic", DECISION_TOPIC),
        id_prefix=_name(options, "transactionalIdPrefix", ID_PREFIX),
        skip_lost=options.word("onLostTransactions", ON_LOST, ON_LOST[0]) == "skip",
    )


def _name(options: Options, name: str, default: str) -> str:
    """Return an option's value, or `default` if the option is not given. Raise BadOption if the value is empty."""
    text = options.text(name)
    if text == "":
        raise BadOption(f"{name} is empty; leave it out for {default!r}")
    return text or default
