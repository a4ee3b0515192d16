"""The loads of `kafkapy bench copies`: consumers that fetch a log from a private broker, hot or cold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from kafkapy.client.administration.admin import Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.raw import requests
from kafkapy.client.raw.connection import RawConnection
from kafkapy.client.raw.fetching import fetch
from kafkapy.client.raw.requests import FETCH_VERSIONS, PRODUCE_VERSIONS, FetchFrame, ProduceReply
from kafkapy.protocol.apis import FETCH, PRODUCE, Api
from kafkapy.testing.broker import Broker
from kafkapy.tools.bench.cpu import used
from kafkapy.tools.bench.figures import MB
from kafkapy.tools.bench.jobs import CLIENT_ID
from kafkapy.tools.bench.leaders import open_raw
from kafkapy.tools.bench.page_cache import bring_in, evict, read_from_disk
from kafkapy.tools.common.errors import ToolError

TOPIC = "copies"
MODES = {"sendfile": True, "copy": False}  # the value of SETTING
SETTING = "kafkapy.zero.copy.enable"
HOT, COLD = "hot", "cold"
GIB = 1 << 30
LONGEST = 55 << 20  # bytes of a response at most: the default of a broker's fetch.max.bytes
_BATCH = 4096  # bytes of a batch at most, so that responses of any size are full
_VALUE = 999  # bytes of a record's value: four of them and the header of a batch fit into _BATCH
_TOGETHER = 256  # batches in one call
_SETTINGS = {
    "log.retention.hours": -1,
    "log.segment.bytes": GIB,
    "log.cleaner.enable": False,
}


@dataclass(frozen=True)
class Load:
    """A number of consumers of a log that is in memory (HOT) or was dropped from the page cache (COLD)."""

    state: str
    consumers: int

    def __str__(self) -> str:
        return f"{self.state}, {self.consumers} consumer{'' if self.consumers == 1 else 's'}"


@dataclass
class Figures:
    """The figures of one load with sendfile or copying, one of each round: MB/s, the broker's CPU seconds per GiB, the
    share of the bytes that came from disk, and the share of a CPU that the consumers used."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    from_disk: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def cpu_per_gib(self) -> float:
        return median(self.cpu)


class StoredLog:
    """A topic in a data directory, which brokers with sendfile and with copying serve in turn.

    All batches have the same length.
    """

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory
        self._batch = requests.batch([bytes(_VALUE)] * (_BATCH // (_VALUE + 16)))
        self._records = _BATCH // (_VALUE + 16)
        self._batches = max(2 * _TOGETHER, -(-size // len(self._batch) // _TOGETHER) * _TOGETHER)
        self.size = self._batches * len(self._batch)

    @contextmanager
    def served(self, mode: str) -> Iterator[Broker]:
        """Run a broker in a process of its own, as `kafkapy start` does, on a free port of this host."""
        with Broker(self.directory, process=True, config={**_SETTINGS, SETTING: MODES[mode]}) as broker:
            yield broker

    def write(self) -> None:
        """Write the log. Raises ToolError if the broker does not store all records."""
        with self.served("sendfile") as broker, Cluster(broker.bootstrap_servers, client_id=CLIENT_ID) as cluster:
            Admin(cluster).create_topic(TOPIC, 1)
            with _connections(cluster, 1, PRODUCE, PRODUCE_VERSIONS) as (version, (connection,)):
                frame = requests.produce(TOPIC, self._batch, 1, version=version, client=CLIENT_ID)
                reply = ProduceReply(TOPIC, version).size
                for _ in range(self._batches // _TOGETHER):
                    connection.socket.sendall(frame * _TOGETHER)
                    connection.discard(reply * _TOGETHER)
            end = Admin(cluster).offsets({(TOPIC, 0): -1})[TOPIC, 0].offset
        if end != self._batches * self._records:
            raise ToolError(f"the private broker stored {end:,} of {self._batches * self._records:,} records")

    def measure(self, broker: Broker, load: Load, fetch_size: int, figures: Figures) -> None:
        """Read the whole log once, and add the results to `figures`. Consumers of a cold log read separate parts."""
        if load.state == COLD:
            self.drop()
        else:
            for file in self._files():
                bring_in(file)
        with Cluster(broker.bootstrap_servers, client_id=CLIENT_ID) as cluster:
            cluster.topic(TOPIC, wait_for_leaders=True)
            with _connections(cluster, load.consumers, FETCH, FETCH_VERSIONS) as (version, consumers):
                frame = FetchFrame(TOPIC, fetch_size, version=version, client=CLIENT_ID)
                offsets = self._offsets(max(1, fetch_size // len(self._batch)))
                each = max(1, len(offsets) // load.consumers) * load.consumers
                answer = frame.head + fetch_size
                if load.state == HOT:
                    fetch(consumers, lambda number: frame.at(offsets[number]), answer, len(offsets), each)
                disk, client = read_from_disk(), time.process_time()
                with used(broker.pid) as usage:
                    seconds = fetch(
                        consumers,
                        lambda number: frame.at(offsets[number]),
                        answer,
                        len(offsets),
                        each,
                        apart=load.state == COLD,
                    )
        sent = each * fetch_size
        figures.rates.append(sent / MB / seconds)
        figures.cpu.append(usage.cpu / (sent / GIB))
        figures.from_disk.append((read_from_disk() - disk) / sent)
        figures.client.append((time.process_time() - client) / seconds)

    def _offsets(self, batches: int) -> list[int]:
        """Return the start offsets of consecutive responses of `batches` batches. More than `batches` batches of the
        same segment follow each offset, because a response has no bytes of the next segment."""
        begins = sorted(int(file.stem) // self._records for file in self._files())
        return [
            batch * self._records
            for begin, end in pairwise([*begins, self._batches])
            for batch in range(begin, end - batches, batches)
        ]

    def _files(self) -> list[Path]:
        return list((self.directory / f"{TOPIC}-0").glob("*.log"))

    def drop(self) -> float:
        """Drop the log from the page cache. Return the share of the log that is still there."""
        files = self._files()
        return sum(map(evict, files)) / max(1, sum(file.stat().st_size for file in files))


@contextmanager
def _connections(
    cluster: Cluster, count: int, api: Api, versions: tuple[int, int]
) -> Iterator[tuple[int, list[RawConnection]]]:
    """Connect to the leader of the topic `count` times. Yield the version of the API and the connections."""
    node = cluster.leader_of(TOPIC, 0)
    with ExitStack() as ending:
        version, found = 0, []
        for _ in range(count):
            connection, version = open_raw(cluster, node, api, versions)
            ending.callback(connection.close)
            found.append(connection)
        yield version, found
