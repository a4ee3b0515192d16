"""The broker is killed by SIGKILL at random moments while a partition moves between log directories under load.

Acknowledged records are there after each start, at their offsets, and in the end the partition has one directory.
`KAFKAPY_FAULT_ROUNDS=200 python -m pytest tests/faults/test_moves_kill_nine.py -s` runs the full length.
"""

import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, FETCH, PRODUCE
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import iter_entries
from tests.faults.rounds import rounds
from tests.harness.brokers import KafkapyBroker
from tests.harness.waiting import eventually
from tests.harness.wire import NOT_YET, Wire
from tests.server.requests import request

pytestmark = pytest.mark.not_quick

ROUNDS = rounds(8)
MOST_ACKS = 1500  # between two kills
SETTINGS = {
    "log.segment.bytes": "200000",
    "log.index.interval.bytes": "1024",
    "log.segment.delete.delay.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "broker.id": "0",
}


def place_of(wire: Wire) -> list[tuple[str, bool]]:
    """Return (directory, is future log) of the logs of the partition."""
    response = wire.call(DESCRIBE_LOG_DIRS, 4, topics=None)
    return [
        (result.log_dir, one.is_future_key)
        for result in response.results
        for topic in result.topics
        if topic.name == "t"
        for one in topic.partitions
    ]


def move_on(bootstrap: str, dirs: list[str], moves: list[str]) -> None:
    """Move the partition between the directories until the broker is killed."""
    make = ALTER_REPLICA_LOG_DIRS.Request
    with suppress(OSError, AssertionError, EOFError), Wire(bootstrap) as wire:
        while True:
            eventually(lambda: len(place_of(wire)) == 1)
            ((path, _),) = place_of(wire)
            target = next(one for one in dirs if one != path)
            topics = [make.Dirs.Topics(name="t", partitions=[0])]
            wire.call(ALTER_REPLICA_LOG_DIRS, 2, make(dirs=[make.Dirs(path=target, topics=topics)]))
            moves.append(target)


def produce(wire: Wire, value: bytes) -> int | None:
    """Produce a record. Return its offset, None if the partition has no leader yet."""
    data = build([(1_700_000_000_000, None, value, [])])
    answer = wire.call(PRODUCE, 9, request("t", data, acks=-1)).responses[0].partition_responses[0]
    assert answer.error_code in (Errors.NONE, *NOT_YET), answer
    return answer.base_offset if answer.error_code == Errors.NONE else None


def stored(wire: Wire) -> dict[int, bytes]:
    """Return all records of the partition by offset."""
    make, found, offset = FETCH.Request, {}, 0
    while True:
        part = make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = make.Topics(topic="t", partitions=[part])
        response = wire.call(FETCH, 11, make(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]))
        (one,) = response.responses[0].partitions
        assert one.error_code == Errors.NONE
        records = [each for entry in iter_entries(bytes(one.records or b"")) for each in records_of(one.records, entry)]
        if not records:
            return found
        found |= {record.offset: bytes(record.value or b"") for record in records}
        offset = records[-1].offset + 1


def test_a_partition_that_moves_survives_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("KAFKAPY_FAULT_SEED", random.randrange(1 << 32)))
    print(f"\nmoves and kill -9: seed {seed}")
    rng = random.Random(seed)
    dirs = [str(tmp_path / "one"), str(tmp_path / "two")]
    settings = {**SETTINGS, "log.dirs": ",".join(dirs)}
    acknowledged: dict[int, bytes] = {}
    moves: list[str] = []
    broker = KafkapyBroker(tmp_path, settings)
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 1)
    for number in range(ROUNDS):
        mover = threading.Thread(target=move_on, args=(broker.bootstrap, dirs, moves))
        with Wire(broker.bootstrap) as wire:
            eventually(lambda wire=wire: produce(wire, b"first") is not None)
            mover.start()
            for count in range(rng.randint(1, MOST_ACKS)):
                value = b"%d %d " % (number, count) + rng.randbytes(2000)
                offset = produce(wire, value)
                assert offset is not None
                acknowledged[offset] = value
            broker.kill()
        mover.join()
        broker = KafkapyBroker(tmp_path, settings)
        with Wire(broker.bootstrap) as wire:
            eventually(lambda wire=wire: produce(wire, b"loaded") is not None)
            found = stored(wire)
        lost = {offset for offset, value in acknowledged.items() if found.get(offset) != value}
        assert not lost, (seed, number, sorted(lost)[:10])
    with Wire(broker.bootstrap) as wire:
        eventually(lambda: len(place_of(wire)) == 1)
    broker.stop()
    names = [path.name for one in dirs for path in Path(one).iterdir() if path.name.startswith("t-0")]
    assert [name for name in names if not name.endswith("-delete")] == ["t-0"]
    print(f"{len(moves)} moves, {len(acknowledged)} records acknowledged")
    assert moves
