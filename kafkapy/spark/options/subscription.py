"""Which topics and partitions a query reads: `assign`, `subscribe` or `subscribePattern`.

Source: ConsumerStrategy of Spark's Kafka source. A pattern is searched for in the name, as there; it is Python's `re`,
which differs from Java's in rare constructs only.
"""

import re
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.offset_json import partitions_of

WAYS = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True)
class Subscription:
    """One of the three is set.

    Attributes:
        assigned: these partitions and no others.
        topics: all partitions of these, new ones too.
        pattern: all partitions of the topics whose names it is found in, new ones too.
    """

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def named_topics(self) -> list[str] | None:
        """The topics to ask the broker about; None: all."""
        if self.pattern is not None:
            return None
        return sorted({topic for topic, _ in self.assigned} | set(self.topics))

    def wants_topic(self, name: str, internal: bool) -> bool:
        """Internal topics are read by nobody who does not name them."""
        if self.pattern is not None:
            return not internal and re.search(self.pattern, name) is not None
        return name in (self.named_topics or ())

    def wants(self, where: TopicPartition) -> bool:
        """Whether a partition of a topic that is wanted is wanted itself."""
        return not self.assigned or where in self.assigned


def subscription(options: Options) -> Subscription:
    """Raises BadOption unless exactly one of the three ways is given, in its form."""
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
        raise BadOption(f"subscribePattern is {text!r}, which is no regular expression: {error}") from None
    return Subscription(pattern=text)
