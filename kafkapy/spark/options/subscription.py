"""The topics and partitions that a query reads: the options `assign`, `subscribe` or `subscribePattern`.

Source: ConsumerStrategy of Spark's Kafka source. As in Spark, a pattern may match any part of a topic's name. Here the
pattern is a Python regular expression, which differs from Java's in rare constructs only.
"""

import re
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.given import BadOption, Options
from kafkapy.spark.options.offset_json import partitions_of

WAYS = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True)
class Subscription:
    """The topics or partitions that a query reads. Exactly one of the attributes is set.

    Attributes:
        assigned: Read these partitions only.
        topics: Read all partitions of these topics, including partitions that are added later.
        pattern: Read all partitions of the topics whose name matches, including topics that are created later.
    """

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def named_topics(self) -> list[str] | None:
        """Return the sorted names of the topics to look up, or None if there is a pattern, which needs all topics."""
        if self.pattern is not None:
            return None
        return sorted({topic for topic, _ in self.assigned} | set(self.topics))

    def wants_topic(self, name: str, internal: bool) -> bool:
        """Return True if the query reads the topic `name`, or partitions of it.

        A pattern never selects internal topics.
        """
        if self.pattern is not None:
            return not internal and re.search(self.pattern, name) is not None
        return name in (self.named_topics or ())

    def wants(self, where: TopicPartition) -> bool:
        """Return True if the query reads the partition `where`, given that it reads the partition's topic."""
        return not self.assigned or where in self.assigned


def subscription(options: Options) -> Subscription:
    """Return the topics or partitions that the options `assign`, `subscribe` or `subscribePattern` select.

    Raises BadOption unless exactly one of the three is given, with a valid value.
    """
    given = [way for way in WAYS if way in options]
    if len(given) != 1:
        what = f"{' and '.join(given)} are" if given else "none is"
        raise BadOption(f"give exactly one of the options {', '.join(WAYS)}, which say what to read: {what} given")
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
    except (re.error, OverflowError, RecursionError) as error:
        raise BadOption(f"subscribePattern is {text!r}, which is not a regular expression: {error}") from None
    return Subscription(pattern=text)
