"""A simple state machine for tests, with the last value of each key and a list of its calls."""

from collections.abc import Sequence
from typing import Any

from kafkapy.coordinator.shard import Effects, Producer, Record
from kafkapy.errors import KafkaError
from kafkapy.record.batch import records_of


class KeyValues:
    """A state machine with the last value of each key. `seen` gets "loaded", "unloaded", and the control batches of the
    load. A record with key `bad` cannot be applied."""

    shard: Any

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.seen: list[str] = []
        self.producers: list[Producer | None] = []
        self.reason: KafkaError | None = None

    def replay(self, header: Any, batch: memoryview) -> None:
        if header.is_control:
            self.seen.append(f"control at {header.last_offset}")
            return
        for record in records_of(batch, header):
            assert record.key is not None
            self._put(record.key, record.value)

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        self.producers.append(producer)
        for key, value in records:
            self._put(key, value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        if key == b"bad":
            raise ValueError("a key that nobody can read")
        self.values[key] = value

    def loaded(self) -> None:
        self.seen.append("loaded")

    def unloaded(self, reason: KafkaError) -> None:
        self.seen.append("unloaded")
        self.reason = reason


def put(key: bytes, value: bytes | None, then: Any = None, producer: Producer | None = None) -> Any:
    """Return a step that appends one record."""
    return lambda machine: Effects([(key, value)], then, producer)
