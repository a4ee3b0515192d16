"""The example docs/examples/totals_in_sqlite.py counts every record once, though it is killed at any moment."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafkapy
from kafkapy.client import Admin, RecordProducer

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "totals_in_sqlite.py"
ACCOUNTS = 7
ROUNDS = 4
RECORDS = 4_000  # of each round
PATIENCE_S = 60.0


@pytest.fixture
def broker():
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.topic.num.partitions": "2",
    }
    with kafkapy.Broker(config=settings) as broker:
        yield broker


def counted(path):
    """Return the sum of all offsets in the file, 0 before there are any."""
    if not path.exists():
        return 0
    with sqlite3.connect(path, timeout=30) as database:
        try:
            return database.execute("SELECT coalesce(sum(next), 0) FROM offsets").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def wait_until_counted(path, records, copies):
    deadline = time.monotonic() + PATIENCE_S
    while counted(path) < records:
        for copy in copies:
            assert copy.poll() is None, copy.stderr.read()
        assert time.monotonic() < deadline, f"{counted(path)} of {records} after {PATIENCE_S:.0f} s"
        time.sleep(0.01)


def test_totals_are_right_although_copies_are_killed(broker, tmp_path):
    rng = random.Random(5)
    path = tmp_path / "totals.db"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("payments", 3)
    command = [sys.executable, str(EXAMPLE), broker.bootstrap_servers, "payments", str(path), "1"]
    expected = {}
    copies = []
    sent = 0
    try:
        with RecordProducer(broker.bootstrap_servers, batch_bytes=2_000) as producer:
            for _ in range(ROUNDS):
                copies.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
                for _ in range(RECORDS):
                    account, amount = f"account-{rng.randrange(ACCOUNTS)}", rng.randrange(1000)
                    producer.send("payments", b"%d" % amount, account.encode())
                    expected[account] = expected.get(account, 0) + amount
                producer.flush()
                sent += RECORDS
                # The oldest copy is killed somewhere in the middle of the round's records.
                wait_until_counted(path, sent - rng.randrange(RECORDS // 4, RECORDS), copies)
                if len(copies) == 2:
                    copies[0].kill()
                    copies.pop(0).communicate()
        wait_until_counted(path, sent, copies)
    finally:
        for copy in copies:
            copy.kill()
            copy.communicate()
    with sqlite3.connect(path) as database:
        assert dict(database.execute("SELECT account, total FROM totals")) == expected
        assert counted(path) == sent
