"""A target in this process, and a fake member of a source's group that reads the records that a test gives it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from kafkapy.client import Consumer, ConsumerRecord
from kafkapy.mirror.member import Listener, NotCommitted, Piece
from kafkapy.record.batch import build
from kafkapy.testing.broker import Broker

Where = tuple[str, int]


@pytest.fixture(scope="session")
def target() -> Iterator[str]:
    with Broker(
        group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2
    ) as broker:
        yield broker.bootstrap_servers


class FakeMember:
    """A member that reads the batches of `logs`, ten records each, and runs a step of `script` before each poll.

    `committed` has the committed offsets. The first `refuses` commits fail. `idle` counts polls without a step.
    """

    def __init__(self, topic: str, partitions: int = 1) -> None:
        self.topic = topic
        self.logs: dict[Where, list[bytes]] = {(topic, number): [] for number in range(partitions)}
        self.positions: dict[Where, int | None] = dict.fromkeys(self.logs)
        self.starts = dict.fromkeys(self.logs, 0)
        self.committed: list[dict[Where, int]] = []
        self.refuses = 0
        self.script: list[Callable[[], object]] = []
        self.idle = 0
        self.listener: Listener | None = None
        self.closed = False

    def write(self, number: int, values: Sequence[bytes], key: bytes | None = b"k") -> None:
        """Append a batch to a partition."""
        log = self.logs[self.topic, number]
        records = [(1000, key, value, ()) for value in values]
        log.append(build(records, base_offset=10 * len(log)))
        assert len(values) == 10

    def cluster_id(self) -> str | None:
        return "source"

    def open(self, listener: Listener) -> None:
        self.listener = listener

    def take(self, *numbers: int) -> None:
        """Assign partitions to the member."""
        assert self.listener is not None
        where = [(self.topic, number) for number in numbers]
        for one in where:
            self.positions[one] = self.starts[one]
        self.listener.on_taken(where)

    def poll(self, timeout_s: float) -> list[Piece]:
        if self.script:
            self.script.pop(0)()
        else:
            self.idle += 1
        found = []
        for where, position in self.positions.items():
            log = self.logs[where]
            if position is not None and position // 10 < len(log):
                found.append(Piece(where, memoryview(log[position // 10]), position, 10 * (position // 10 + 1)))
                self.positions[where] = found[-1].after
        return found

    def seek(self, where: Where, offset: int | None) -> None:
        self.positions[where] = offset

    def position(self, where: Where) -> int:
        return self.starts[where]

    def commit(self, offsets: Mapping[Where, int]) -> None:
        if self.refuses:
            self.refuses -= 1
            raise NotCommitted("the group rebalances")
        self.committed.append(dict(offsets))

    def partition_count(self, topic: str) -> int:
        return len(self.logs)

    def lags(self) -> dict[Where, int]:
        return {where: 10 * len(log) - (self.positions[where] or 0) for where, log in self.logs.items()}

    def waiting(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


class Stop:
    """A stop condition: true when the member's script is done and so many polls have followed."""

    def __init__(self, member: FakeMember, more: int = 2) -> None:
        self._member = member
        self._until = member.idle + more

    def __call__(self) -> bool:
        return self._member.idle >= self._until


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[ConsumerRecord]:
    """Return all records of a topic."""
    with Consumer(servers, isolation=isolation) as consumer:  # type: ignore[arg-type]
        consumer.assign_topic(topic)
        return list(consumer.records(until=consumer.end_offsets()))
