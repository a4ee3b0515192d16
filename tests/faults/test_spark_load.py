"""`kafkapy spark load` is killed by SIGKILL at random moments, repeatedly: no row is lost or duplicated.

A producer writes all the time, loads and reloads run and are killed, and a reader that does not use kafkapy reads the
whole directory all the time. `KAFKAPY_FAULT_ROUNDS=200 python -m pytest tests/faults/test_spark_load.py -s` is the
full length. Everything is chosen by a seed that is printed (KAFKAPY_FAULT_SEED repeats a run's choices).
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from subprocess import PIPE, Popen, run

import pyarrow.parquet as pq
import pytest

from kafkapy.client import Admin, RecordProducer
from kafkapy.testing.broker import Broker
from tests.faults.rounds import rounds

ROUNDS = rounds(6)
JOB = Path(__file__).with_name("load_job.py")
PARTITIONS = 3
DAY_MS = 86_400_000
FIRST_DAY = 20_000
DAYS = 4
MOST_RECORDS = 40_000  # enough for a run of a few rounds

pytestmark = [pytest.mark.not_quick, pytest.mark.timeout(max(300, 15 * ROUNDS))]


class Records(threading.Thread):
    """A thread that produces until it is stopped. One of 50 records is not JSON. Dates repeat, so that files of all
    dates change."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.sent = 0
        self.bad = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        with RecordProducer(self.bootstrap) as producer:
            while not self.stopped.is_set() and (self.sent < MOST_RECORDS or ROUNDS > 20):
                for _ in range(100):
                    good = self.sent % 50 != 7
                    value = json.dumps({"n": self.sent}).encode() if good else b"no"
                    stamp = (FIRST_DAY + self.sent // 500 % DAYS) * DAY_MS
                    producer.send(self.topic, value, partition=self.sent % PARTITIONS, timestamp=stamp)
                    self.sent += 1
                    self.bad += not good
                producer.flush()
                self.stopped.wait(0.05)


def rows_of(directory: Path, column: str) -> list[object]:
    """Return all rows of the listed files. Raise FileNotFoundError if a file was replaced meanwhile."""
    found: list[object] = []
    for path in sorted(directory.rglob("*.parquet")):
        table = pq.ParquetFile(path).read(["partition", "offset", column])
        found += [tuple(row.values()) for row in table.to_pylist()]
    return found


class Reader(threading.Thread):
    """A thread that reads the directory repeatedly, and keeps the first duplicate row or torn file that it finds."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.reads = 0
        self.replaced = 0
        self.wrong: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set() and not self.wrong:
            try:
                counts = Counter(rows_of(self.directory, "n"))
                self.reads += 1
                if twice := [row for row, count in counts.items() if count > 1]:
                    self.wrong.append(f"there twice: {twice[:3]}")
            except FileNotFoundError:
                self.replaced += 1
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
            self.stopped.wait(0.005)


@pytest.mark.other_runtime
def test_a_load_that_is_killed_repeatedly_loses_and_duplicates_no_row(kafkapy_broker: Broker, tmp_path: Path) -> None:
    seed = int(os.environ.get("KAFKAPY_FAULT_SEED", random.randrange(1 << 32)))
    print(f"KAFKAPY_FAULT_SEED={seed}")
    rng = random.Random(seed)
    topic, directory = f"killed-{seed}", tmp_path / "landed"
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        admin.create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})
    records, reader = Records(kafkapy_broker.bootstrap_servers, topic), Reader(directory)
    call = [sys.executable, str(JOB), kafkapy_broker.bootstrap_servers, topic, str(directory)]
    records.start()
    reader.start()
    outcomes: Counter[str] = Counter()
    usual_s = 1.0  # duration of a load that is not killed
    for number in range(ROUNDS):
        again = number > 1 and rng.random() < 0.4
        since = [str((FIRST_DAY + rng.randrange(DAYS)) * DAY_MS)] if again else []
        with Popen([*call, *since], stdout=PIPE, text=True) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == "begun\n"
            began = time.monotonic()
            killer = threading.Timer(rng.uniform(0, 1.3 * usual_s), job.kill)
            if number != 1:
                killer.start()
            ended = "done" if job.stdout.readline() else "killed"
            killer.cancel()
        if ended == "done":
            usual_s = time.monotonic() - began
        outcomes[f"{'again' if again else 'load'} {ended}"] += 1
        assert not reader.wrong, reader.wrong
    records.stopped.set()
    records.join()
    last = run(call, check=True, capture_output=True, text=True)
    assert not last.stderr, last.stderr
    reader.stopped.set()
    reader.join()
    print(dict(outcomes), f"{records.sent:,} records, {reader.reads} reads, {reader.replaced} of replaced files")
    assert not reader.wrong, reader.wrong
    good = [row[2] for row in rows_of(directory, "n")]  # type: ignore[index]
    assert sorted(good) == [n for n in range(records.sent) if n % 50 != 7]
    assert len(rows_of(Path(f"{directory}.kafkapy") / "rejected", "reason")) == records.bad
