"""The rules for names of topics in Kafka 0.7 (kafka.utils.TopicNameValidator)."""

from __future__ import annotations

import re

# The slash, and the characters that ZooKeeper does not allow in paths.
_ILLEGAL = re.compile("[/\\x00-\\x1f\\x7f-\\x9f\ud800-\uf8ff\ufff0-\uffff]")


class IllegalTopic(Exception):
    """Raised for a name that no topic may have."""


def check_topic(topic: str, longest: int) -> str:
    """Return the name, which may have `longest` characters of UTF-16. Raises IllegalTopic."""
    if not topic:
        raise IllegalTopic("a topic without a name")
    if len(topic.encode("utf-16-le", "surrogatepass")) // 2 > longest:
        raise IllegalTopic(f"a topic with a name of more than {longest} characters")
    if topic in (".", "..") or _ILLEGAL.search(topic):
        raise IllegalTopic(f"a topic with the illegal name {topic[:100]!r}")
    return topic
