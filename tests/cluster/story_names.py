"""Replaces values that differ between two clusters with the same story, such as ports and topic ids, by names."""

from __future__ import annotations

import base64
import json
from typing import Any

from kafkapy.protocol.message import Message

_SKIPPED = ("error_message", "throttle_time_ms", "cluster_id")


class Names:
    """The names of one cluster. `ports` has the port of each broker."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._ids: dict[bytes, str] = {}
        self._generations: dict[str, int] = {}

    def port(self, port: int) -> str:
        return next((f"port of {one}" for one, its in self._ports.items() if its == port), str(port))

    def topic_id(self, topic_id: bytes, topic: str | None = None) -> str:
        """Return a name for a topic id: the topic's name, with a number if the topic has had other ids before."""
        if topic_id == bytes(16):
            return "no id"
        if topic_id not in self._ids:
            if topic is None:
                return "unknown id"
            number = self._generations[topic] = self._generations.get(topic, 0) + 1
            self._ids[topic_id] = f"id {number} of {topic}"
        return self._ids[topic_id]

    def message(self, value: Any, topic: str | None = None) -> Any:
        """Return a message as a dict with names, without error messages. Lists of results are sorted, because Kafka's
        are in the order of a hash map.
        """
        if isinstance(value, Message):
            found = [getattr(value, field, None) for field in ("name", "topic_name", "topic")]
            topic = next((one for one in found if isinstance(one, str) and one), topic)
            return {
                field: self._field(field, getattr(value, field), topic)
                for field in value._fields
                if field not in _SKIPPED
            }
        if isinstance(value, list | tuple):
            values = [self.message(one, topic) for one in value]
            return sorted(values, key=str) if any(isinstance(one, dict) for one in values) else values
        return value

    def _field(self, field: str, value: Any, topic: str | None) -> Any:
        if field == "topic_id":
            return self.topic_id(value, topic)
        return self.port(value) if field == "port" else self.message(value, topic)

    def node(self, path: str, content: bytes | None) -> Any:
        """Return the content of a node with names, without times."""
        if not content:
            return "empty"
        if path == "/cluster/id":
            return "the cluster's id"
        try:
            value = json.loads(content)
        except ValueError:
            return content
        if not isinstance(value, dict):
            return value
        value.pop("timestamp", None)
        if path.startswith("/brokers/ids/"):
            value = {field: value.get(field) for field in ("version", "rack", "features")}
        if "topic_id" in value:
            topic_id = base64.urlsafe_b64decode(value["topic_id"] + "==")
            value["topic_id"] = self.topic_id(topic_id, path.rpartition("/")[2])
        return value
