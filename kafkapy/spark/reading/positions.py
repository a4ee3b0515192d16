"""A query's progress, which Spark keeps in the checkpoint as a JSON object.

    {"kafkapy": 1, "offsets": {"orders": {"0": 1200, "1": 1180}}, "topics": {"orders": "5f6c..."}}

`topics` has the topic ids, which tell a recreated topic from the old one of the same name.

Two more keys appear at the beginning of a query. Spark does not store the start of a query. If the first batch has to
be repeated, Spark asks for the start again, and the answer may differ. `initial` marks such an answer, and the end of
the first batch has the offsets that the query really started from in `start`.

An offset of Spark's own Kafka source, `{"orders": {"0": 1200}}`, is read, too, so that its queries can continue with
this source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkapy.client.cluster import TopicPartition

VERSION = 1


class BadCheckpoint(ValueError):
    """The error for a checkpoint that was written by a newer version, or by another source.

    Checkpoints of Spark's own Kafka source are valid.
    """


@dataclass(frozen=True)
class Positions:
    """The offset of the next record to read in each partition.

    Attributes:
        topic_ids: The topic ids by topic name, in hex. Topics without an id are left out.
        initial: True if this is the start of a new query.
        start: The offsets where the query started, if this is the end of the query's first micro-batch, else None.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: bool = False
    start: Mapping[TopicPartition, int] | None = None

    def same_topic(self, other: "Positions", topic: str) -> bool:
        """Return True unless `self` and `other` have different ids for the topic, which means that it was recreated."""
        return self.topic_ids.get(topic) in (None, other.topic_ids.get(topic)) or topic not in other.topic_ids

    def to_json(self) -> dict[str, Any]:
        """Return the positions as a JSON object for Spark's checkpoint.

        Equal positions give equal JSON text, because Spark compares the text.
        """
        text: dict[str, Any] = {"kafkapy": VERSION, "offsets": _nested(self.offsets)}
        if self.topic_ids:
            text["topics"] = dict(sorted(self.topic_ids.items()))
        if self.initial:
            text["initial"] = True
        if self.start is not None:
            text["start"] = _nested(self.start)
        return text


def positions_of(text: Any) -> Positions:
    """Return the positions in a JSON object from Spark's checkpoint.

    Checkpoints of Spark's own Kafka source are valid, too.

    Raises BadCheckpoint if the object was written by a newer version, or by another source.
    """
    try:
        if not isinstance(text.get("kafkapy"), int):
            return Positions(_flat(text))
        if text["kafkapy"] > VERSION:
            raise BadCheckpoint(
                f"the checkpoint was written by a newer kafkapy (format version {text['kafkapy']}, this one supports "
                f"{VERSION}): install that version"
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
            f"the checkpoint holds {text!r}, which is not an offset of the source kafkapy but of another query; "
            "choose another checkpointLocation"
        ) from None


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(index)] = offset
    return nested


def _flat(nested: Any) -> dict[TopicPartition, int]:
    return {(topic, int(index)): int(offset) for topic, of in nested.items() for index, offset in of.items()}
