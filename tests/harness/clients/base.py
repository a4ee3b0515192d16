"""The interface of the clients in the tests.

A client has the methods in its `abilities` and the codecs in `codecs`; tests are parametrized with these pairs at
collection, so that nothing is skipped at run time. A broker's errors are raised as ClientError with Kafka's code.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

EVERYTHING = frozenset({"timestamp", "null_header", "repeated_header", "empty", "nothing", "binary"})
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class ClientError(Exception):
    """An error response of a broker: Kafka's error code and the client's message."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"error {code}: {message}")


@dataclass(frozen=True)
class Record:
    """A record to produce. If `partition` is None, the client's partitioner chooses; if `timestamp` (ms) is None, the
    client's clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True)
class Received:
    """A record that a consumer got."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def next_offsets(read: Iterable[Received]) -> dict[int, int]:
    """Return the next offset after these records, by partition."""
    ends: dict[int, int] = {}
    for each in read:
        ends[each.partition] = max(each.offset + 1, ends.get(each.partition, 0))
    return ends


@dataclass(frozen=True)
class Partition:
    """A partition in a topic's metadata."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Client:
    """A client of one language and version, connected to one broker. A subclass has the methods that it supports."""

    name: str
    abilities: frozenset[str] = frozenset()  # names of the methods below that it has
    lacks: frozenset[str] = frozenset()  # ... of those that it inherits and cannot do after all
    codecs: tuple[str, ...] = CODECS
    # What its records can hold: "timestamp" a given one, "null_header", "repeated_header", "empty" keys and values,
    # "nothing" neither key nor value, "binary" any bytes.
    expressive: frozenset[str] = EVERYTHING

    def __init_subclass__(cls) -> None:
        own = {name for name, method in vars(Client).items() if callable(method) and getattr(cls, name) is not method}
        cls.abilities = frozenset(name for name in own if not name.startswith("_")) - cls.lacks

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def close(self) -> None:
        """Close connections and end child processes."""

    def express(self, record: Record) -> Record:
        """Return the record as far as this client's interface can express it."""
        if "timestamp" not in self.expressive:
            record = replace(record, timestamp=None)
        if "null_header" not in self.expressive:
            record = replace(record, headers=tuple((k, v) for k, v in record.headers if v is not None))
        if "repeated_header" not in self.expressive:
            record = replace(record, headers=tuple(dict(record.headers).items()))
        if "empty" not in self.expressive:
            record = replace(record, key=record.key or None, value=record.value or None)
        if "nothing" not in self.expressive and record.key is None and record.value is None:
            record = replace(record, value=b"something")
        if "binary" not in self.expressive:
            record = replace(record, key=_text(record.key), value=_text(record.value))
            record = replace(record, headers=tuple((k, _text(v)) for k, v in record.headers))
        return record

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        """Send the records in order and wait for all. Return (partition, offset) of each, -1 if unknown."""
        raise NotImplementedError

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        """Read [start, end) of each partition by assignment and seek, without a group, all partitions at once."""
        raise NotImplementedError

    def consume(
        self, group: str, topic: str, count: int, patience_s: float, *, by_pattern: bool = False
    ) -> list[Received]:
        """Read `count` records as a member of a group, or those that come within `patience_s`, and commit.
        `by_pattern`: subscribe to the regular expression ^TOPIC$."""
        raise NotImplementedError

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        """Return for each partition the first offset whose record is not older than the time (ms), or None."""
        raise NotImplementedError

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the first and the end offset of each partition."""
        raise NotImplementedError

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset of the record with the largest timestamp in each partition."""
        raise NotImplementedError

    def cluster(self) -> dict[str, Any]:
        """Return `cluster_id` (None if unknown), `controller` (node id), `nodes` (list of (id, host, port))."""
        raise NotImplementedError

    def topic_names(self) -> set[str]:
        """Return the names of all topics."""
        raise NotImplementedError

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        """Return a topic's metadata."""
        raise NotImplementedError

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        """Create a topic with replication factor 1."""
        raise NotImplementedError

    def add_partitions(self, topic: str, total: int) -> None:
        """Add partitions, up to `total`."""
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        raise NotImplementedError

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """Return all settings of a topic."""
        raise NotImplementedError

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        """Return all settings of a broker."""
        raise NotImplementedError

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Replace the topic's overrides by these (AlterConfigs), or add these to them (IncrementalAlterConfigs)."""
        raise NotImplementedError

    def reset_topic_config(self, topic: str, name: str) -> None:
        """Remove one override (IncrementalAlterConfigs)."""
        raise NotImplementedError

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete records before the offsets (-1: the high watermark). Return the new low watermarks."""
        raise NotImplementedError

    def log_dirs(self, topic: str) -> dict[int, int]:
        """Return the sizes in bytes of the topic's partitions on the one broker."""
        raise NotImplementedError

    def producers(self, topic: str, partition: int) -> list[dict[str, int]]:
        """Return `producer_id`, `epoch`, `last_sequence`, `last_timestamp` of a partition's producers."""
        raise NotImplementedError

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Request a preferred election. Return the error code of each partition."""
        raise NotImplementedError

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        """Read the partitions from their beginning until each has given a record with the value `last`; only committed
        records if `committed`."""
        raise NotImplementedError

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        """Open a producer with the transactional id `name`, ready to begin a transaction; keep it under that name."""
        raise NotImplementedError

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        """Begin a transaction if none is open, send the records and wait for all; then commit, abort or leave it open,
        as `outcome` says: commit, abort or open."""
        raise NotImplementedError

    def finish(self, name: str, outcome: str) -> None:
        """Commit or abort the open transaction."""
        raise NotImplementedError

    def close_transactional(self, name: str) -> None:
        """Drop the producer, whatever its state."""
        raise NotImplementedError

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        """Read `count` committed records as a member of the group; in one transaction send their values in upper case
        to the same partitions of the target, and commit the offsets; return the records read."""
        raise NotImplementedError


def _text(value: bytes | None) -> bytes | None:
    return value if value is None else value.hex().encode() if any(b < 32 or b > 126 for b in value) else value
