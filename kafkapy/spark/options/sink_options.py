"""The options of the sink `kafkapy`."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.producer_properties import ProducerProperties, producer_properties

DELIVERIES = ("at-least-once", "exactly-once")
ON_LOST = ("fail", "skip")
KNOWN = ("topic", "delivery", "decisionTopic", "transactionalIdPrefix", "onLostTransactions", "includeHeaders")
OF_SPARK = ("checkpointLocation", "queryName", "path")  # Spark hands its own on to every sink

DECISION_TOPIC = "kafkapy-spark-decisions"
ID_PREFIX = "kafkapy-spark"


@dataclass(frozen=True)
class SinkOptions:
    """Checked; travels to the workers.

    Attributes:
        topic: where rows go; None: the column `topic` says it for each.
        exactly_once: as `delivery` says.
        decision_topic: where it is kept which transactions make an epoch.
        id_prefix: how all transactional ids begin.
        skip_lost: goes on without the rows of transactions that timed out after their epoch was decided.
    """

    producer: ProducerProperties
    topic: str | None
    exactly_once: bool
    decision_topic: str
    id_prefix: str
    skip_lost: bool


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises BadOption with what is wrong."""
    options = Options(given, (*KNOWN, *OF_SPARK), "the sink kafkapy")
    options.boolean(
        "includeHeaders", False
    )  # has no effect: headers are written where there is a column, as by Spark's
    producer = producer_properties(options.kafka())
    exactly_once = options.word("delivery", DELIVERIES, DELIVERIES[0]) == DELIVERIES[1]
    if exactly_once and not (producer.acks == -1 and producer.idempotent):
        raise BadOption("delivery is exactly-once, which needs kafka.acks=all and kafka.enable.idempotence=true")
    topic = options.text("topic")
    if topic == "":
        raise BadOption("topic is empty: name one, or leave the option out and fill a column topic")
    return SinkOptions(
        producer=producer,
        topic=topic,
        exactly_once=exactly_once,
        decision_topic=_name(options, "decisionTopic", DECISION_TOPIC),
        id_prefix=_name(options, "transactionalIdPrefix", ID_PREFIX),
        skip_lost=options.word("onLostTransactions", ON_LOST, ON_LOST[0]) == "skip",
    )


def _name(options: Options, name: str, default: str) -> str:
    text = options.text(name)
    if text == "":
        raise BadOption(f"{name} is empty; leave it out for {default!r}")
    return text or default
