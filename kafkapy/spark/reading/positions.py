"""How far a query has read, as Spark keeps it in the checkpoint: one JSON object an offset.

    {"kafkapy": 1, "offsets": {"orders": {"0": 1200, "1": 1180}}, "topics": {"orders": "5f6c..."}}

`topics` holds the ids of the topics, so that one that was deleted and made again under the same name is told apart.
Two more keys are there at a query's beginning. Spark does not write down where a query starts, and asks anew when the
first batch has to be repeated, when the answer may be another: `initial` marks that answer, and the end of the first
batch carries the offsets that it really started from in `start`.

An offset of Spark's own Kafka source, `{"orders": {"0": 1200}}`, is understood too, so that a query can go on with this
source where it left off with that one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkapy.client.cluster import TopicPartition

VERSION = 1


class BadCheckpoint(ValueError):
    """A checkpoint holds what is no offset of this source."""


@dataclass(frozen=True)
class Positions:
    """The offset of the next record of each partition.

    Attributes:
        topic_ids: hex; a topic is missing where the broker has no ids.
        initial: whether this is where a new query starts.
        start: where the query started; only in the end of its first batch.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: bool = False
    start: Mapping[TopicPartition, int] | None = None

    def same_topic(self, other: "Positions", topic: str) -> bool:
        """False if a topic is known to be another one of the same name."""
        return self.topic_ids.get(topic) in (None, other.topic_ids.get(topic)) or topic not in other.topic_ids

    def to_json(self) -> dict[str, Any]:
        """Equal positions give equal text: Spark compares that."""
        text: dict[str, Any] = {"kafkapy": VERSION, "offsets": _nested(self.offsets)}
        if self.topic_ids:
            text["topics"] = dict(sorted(self.topic_ids.items()))
        if self.initial:
            text["initial"] = True
        if self.start is not None:
            text["start"] = _nested(self.start)
        return text


def positions_of(text: Any) -> Positions:
    """Raises BadCheckpoint."""
    try:
        if not isinstance(text.get("kafkapy"), int):
            return Positions(_flat(text))
        if text["kafkapy"] > VERSION:
            raise BadCheckpoint(
                f"the checkpoint was written by a newer kafkapy (version {text['kafkapy']} of its form, this one knows "
                f"{VERSION}): install that one"
            )
        start = text.get("start")
        return Positions(
            _flat(text["offsets"]),
            {str(topic): str(one) for topic, one in text.get("topics", {}).items()},
            bool(text.get("initial")),
            None if start is None else _flat(start),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadCheckpoint):
            raise
        raise BadCheckpoint(
            f"the checkpoint holds {text!r}, which is no offset of the source kafkapy: it is that of another query; "
            "choose another checkpointLocation"
        ) from None


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(index)] = offset
    return nested


def _flat(nested: Any) -> dict[TopicPartition, int]:
    return {(topic, int(index)): int(offset) for topic, of in nested.items() for index, offset in of.items()}
