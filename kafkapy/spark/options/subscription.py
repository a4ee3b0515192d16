"""The topics and partitions that a query reads: `assign`, `subscribe` or `subscribePattern`.

Source: ConsumerStrategy of Spark's Kafka source. As there, a pattern is searched for in the name. It is a Python
regular expression, which differs from Java's in rare constructs only.
"""

import re
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.offset_json import partitions_of

WAYS = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True)
class Subscription:
    """The subscription of a query. Exactly one of the attributes is set.

    Attributes:
        assigned: These partitions only.
        topics: All partitions of these topics, including new partitions.
        pattern: All partitions of the topics whose name has a match, including new topics.
    """

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def named_topics(self) -> list[str] | None:
        """Return the topics to look up, None for all topics."""
        if self.pattern is not None:
            return None
        return sorted({topic for topic, _ in self.assigned} | set(self.topics))

    def wants_topic(self, name: str, internal: bool) -> bool:
        """Return True if the topic is subscribed. A pattern never selects internal topics."""
        if self.pattern is not None:
            return not internal and re.search(self.pattern, name) is not None
        return name in (self.named_topics or ())

    def wants(self, where: TopicPartition) -> bool:
        """Return True if a partition of a subscribed topic is subscribed."""
        return not self.assigned or where in self.assigned


def subscription(options: Options) -> Subscription:
    """Return the subscription. Raises BadOption unless exactly one of the three options is given, correctly."""
    given = [way for way in WAYS if way in options]
    if len(given) != 1:
        what = f"{' and '.join(given)} are" if given else "none is"
        raise BadOption(f"one of the options {', '.join(WAYS)} says what to read, and only one: {what} given")
    (way,) = given
    text = options.text(way) or ""
    if way == "assign":
        return Subscription(assigned=tuple(partitions_of(way, text)))
    if way == "subscribe":
        topics = options.names(way)
        if not topics:
            raise BadOption(f"subscribe is {text!r}: write topics, separated by commas")
        return Subscription(topics=tuple(dict.fromkeys(topics)))
    try:
        if not text:
            raise re.error("it is empty")
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern is {text!r}, which is not a regular expression: {error}") from None
    return Subscription(pattern=text)
