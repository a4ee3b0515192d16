"""A broker with more partitions than the number of files it may keep open, over real connections."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkapy.errors import Errors
from kafkapy.runtime.descriptors import half_of_the_descriptors
from tests.harness.wire import Wire
from tests.server.requests import batch, fetch, make_topic, produce, start_broker

PARTITIONS = 24
LIMIT = 5
ROUNDS = 6


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def started(data):
    return start_broker(data, kafkapy_log_max_open_files=LIMIT, log_segment_bytes=1000)


def open_below(directory):
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        found += path.startswith(str(directory)) and ".log" in path
    return found


def wait_until_closed(directory, most):
    """Wait until at most so many files are open. A response keeps its files open until it is sent."""
    deadline = time.monotonic() + 30
    while (found := open_below(directory)) > most:
        assert time.monotonic() < deadline, f"{found} files are open, and should be {most} at most"


def value(partition, number):
    return b"%d of %d, " % (number, partition) * 20


def write(server, partitions):
    wire = Wire(server.bootstrap_servers)
    for number in range(ROUNDS):
        for partition in partitions:
            answer = produce(wire, f"many-{partition}", batch(value(partition, number)))
            assert (answer.error_code, answer.base_offset) == (Errors.NONE, number)
    wire.close()


def read(server, partitions):
    """Fetch all records, and check that each is the one that was written to this partition."""
    wire = Wire(server.bootstrap_servers)
    for number in range(ROUNDS):
        for partition in partitions:
            answer = fetch(wire, f"many-{partition}", offset=number)
            assert answer.error_code == Errors.NONE
            assert value(partition, number) in bytes(answer.records)
    wire.close()


def test_under_load_the_limit_holds_and_every_partition_has_its_own_records_also_after_a_restart(data):
    server = started(data)
    wire = Wire(server.bootstrap_servers)
    for partition in range(PARTITIONS):
        make_topic(wire, f"many-{partition}")
    wire.close()
    shares = [range(first, PARTITIONS, 4) for first in range(4)]
    with ThreadPoolExecutor(8) as pool:
        assert not any([*pool.map(write, [server] * 4, shares)])
        done = [*pool.map(read, [server] * 4, shares)]
    assert not any(done)
    assert server.services.log_manager.open_files <= LIMIT
    wait_until_closed(data, LIMIT)
    server.stop()
    wait_until_closed(data, 0)

    server = started(data)
    assert open_below(data) == 0
    read(server, range(PARTITIONS))
    wait_until_closed(data, LIMIT)
    server.stop()


def test_by_default_logs_keep_half_of_the_descriptors(data):
    server = start_broker(data)
    assert server.services.log_manager._files.open_files.limit == half_of_the_descriptors() > 0
    server.stop()
