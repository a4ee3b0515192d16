"""A partition is read as Arrow rows while its broker is killed and starts again, or stays away."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kafkapy.arrow.partition_reader import read_partition
from kafkapy.client import Admin, Cluster, NothingFetched, RecordProducer
from tests.faults.rounds import rounds
from tests.harness.brokers import KafkapyBroker, free_port

pytestmark = pytest.mark.not_quick

ROUNDS = rounds(4)
RECORDS = 20_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[list[KafkapyBroker]]:
    """Yield the running broker in a list, so that a test can replace it."""
    running = [KafkapyBroker(tmp_path, port=free_port())]
    yield running
    if running:
        running[0].stop()


def fill(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("t", 1)
    with RecordProducer(servers, batch_bytes=2000) as producer:
        for number in range(RECORDS):
            producer.send("t", b"%d" % number)


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_every_record_is_read_once_however_often_the_broker_is_killed(
    broker: list[KafkapyBroker], tmp_path: Path
) -> None:
    servers, port = broker[0].bootstrap, broker[0].port
    fill(servers)
    random = Random(ROUNDS)
    deaths = sorted(random.sample(range(RECORDS), ROUNDS))
    read: list[int] = []
    with Cluster(servers) as cluster:
        # Small fetches and batches, so that the reader is far from the end whenever the broker is killed.
        batches = read_partition(
            cluster, "t", 0, 0, RECORDS, columns=["value"], max_rows=50, fetch_bytes=10_000, timeout_s=60
        )
        for batch in batches:
            read += map(int, batch["value"].to_pylist())
            while deaths and len(read) > deaths[0]:
                del deaths[0]
                broker[0].kill()
                broker[0] = KafkapyBroker(tmp_path, port=port)
    assert not deaths
    assert read == list(range(RECORDS))


def test_a_broker_that_stays_away_ends_the_reading_with_a_sentence(broker: list[KafkapyBroker]) -> None:
    fill(broker[0].bootstrap)
    address = broker[0].bootstrap
    with Cluster(address) as cluster:
        batches = read_partition(cluster, "t", 0, 0, RECORDS, max_rows=50, fetch_bytes=10_000, timeout_s=3)
        next(batches)
        broker.pop().kill()
        with pytest.raises(NothingFetched, match=rf"^t-0 gave nothing from offset \d+ on within 3 s: .*{address}"):
            list(batches)
