"""What the tests ask of a client, in the tests' own words.

A client does what is in its `abilities` and knows the codecs in `codecs`; tests are made for these pairs when they
are collected, so that nothing is skipped at run time. Errors of a broker come as ClientError with Kafka's error code.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

EVERYTHING = frozenset({"timestamp", "null_header", "repeated_header", "empty", "nothing", "binary"})
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class ClientError(Exception):
    """A broker's answer that is an error: Kafka's error code, and what the client says about it."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"error {code}: {message}")


@dataclass(frozen=True)
class Record:
    """A record to produce; `partition` None: the client's partitioner chooses, `timestamp` (ms) None: its clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True)
class Received:
    """A record as a consumer got it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def next_offsets(read: Iterable[Received]) -> dict[int, int]:
    """Where to go on after these records, by partition."""
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
    """A client of one language and version, connected to one broker; a subclass has the methods that it can do."""

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
        """Ends connections and child processes."""

    def express(self, record: Record) -> Record:
        """The record as far as this client's interface can say it."""
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
        """Sends the records in order and waits for all; (partition, offset) of each, -1 where it cannot say."""
        raise NotImplementedError

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        """Reads [start, end) of each partition by assignment and seek, without a group, all partitions at once."""
        raise NotImplementedError

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        """For each partition the first offset whose record is not older than the time (ms), or None."""
        raise NotImplementedError

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """First and next offset of each partition."""
        raise NotImplementedError

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Offset of the record with the largest timestamp in each partition."""
        raise NotImplementedError

    def cluster(self) -> dict[str, Any]:
        """`cluster_id` (None where it does not tell), `controller` (node id), `nodes` (list of (id, host, port))."""
        raise NotImplementedError

    def topic_names(self) -> set[str]:
        """Names of all topics."""
        raise NotImplementedError

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        """A topic's metadata."""
        raise NotImplementedError

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        """A topic with replication factor 1."""
        raise NotImplementedError

    def add_partitions(self, topic: str, total: int) -> None:
        """Makes the topic have `total` partitions."""
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        raise NotImplementedError

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """All settings of a topic."""
        raise NotImplementedError

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        """All settings of a broker."""
        raise NotImplementedError

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Sets the topic's overrides to these (AlterConfigs), or adds these to them (IncrementalAlterConfigs)."""
        raise NotImplementedError

    def reset_topic_config(self, topic: str, name: str) -> None:
        """Takes one override away (IncrementalAlterConfigs)."""
        raise NotImplementedError

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Deletes what is before the offsets (-1: before the high watermark); the new low watermarks."""
        raise NotImplementedError

    def log_dirs(self, topic: str) -> dict[int, int]:
        """Sizes in bytes of the topic's partitions on the one broker."""
        raise NotImplementedError

    def producers(self, topic: str, partition: int) -> list[dict[str, int]]:
        """`producer_id`, `epoch`, `last_sequence`, `last_timestamp` of the producers that a partition knows."""
        raise NotImplementedError

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Asks for a preferred election; the error code of each partition."""
        raise NotImplementedError

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        """Reads the partitions from their beginning until each has given a record with the value `last`, without what
        was not committed if it is to be `committed`."""
        raise NotImplementedError

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        """A producer with that transactional id, ready to begin; it is kept under its `name`."""
        raise NotImplementedError

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        """Begins a transaction if none is open, sends the records and waits for all; `outcome` is commit, abort or
        open, which leaves it as it is."""
        raise NotImplementedError

    def finish(self, name: str, outcome: str) -> None:
        """Commits or aborts what was left open."""
        raise NotImplementedError

    def close_transactional(self, name: str) -> None:
        """Forgets the producer, whatever state it is in."""
        raise NotImplementedError

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        """As a member of the group reads `count` committed records, and in one transaction sends their values in upper
        case to the same partitions of the target, and the offsets to the group; what it read."""
        raise NotImplementedError


def _text(value: bytes | None) -> bytes | None:
    return value if value is None else value.hex().encode() if any(b < 32 or b > 126 for b in value) else value
