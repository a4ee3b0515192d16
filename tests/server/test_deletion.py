"""Segments deleted while clients read them, and retention settings changed by clients, over real connections."""

import os
import socket
import struct

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata import paths
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create
from kafkapy.protocol.apis import DELETE_RECORDS, DELETE_TOPICS, FETCH, INCREMENTAL_ALTER_CONFIGS
from tests.harness.wire import Wire
from tests.server.requests import (
    FETCH_VERSION,
    batch,
    end_offset,
    fetch,
    fetch_request,
    fetch_values,
    make_topic,
    produce,
    start_broker,
)

MIB = 1 << 20
SEGMENT = 8 * MIB
BATCHES = 20


@pytest.fixture
def server(tmp_path):
    running = start_broker(tmp_path, log_segment_bytes=SEGMENT, log_segment_delete_delay_ms=1, log_retention_ms=-1)
    yield running
    running.stop()


@pytest.fixture
def log(server):
    """Return a log of several segments of 8 MiB."""
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "big")
    for number in range(BATCHES):
        assert produce(wire, topic, batch(bytes([number]) * (MIB - 1000))).error_code == Errors.NONE
    wire.close()
    return server.services.replicas.get("big", 0).log


class SlowReader:
    """A client that has read only the first bytes of a whole segment, so the broker is still sending it."""

    def __init__(self, server):
        self.wire = Wire(server.bootstrap_servers)
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.wire.send(FETCH, FETCH_VERSION, fetch_request("big", max_bytes=SEGMENT, part_max=SEGMENT))
        (self.size,) = struct.unpack(">i", self.wire._exactly(4))
        assert self.size > SEGMENT // 2

    def finish(self):
        """Read and return the rest of the response."""
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        rest = bytearray(self.size)
        got = 0
        while got < self.size:
            part = self.wire.socket.recv_into(memoryview(rest)[got:])
            assert part, f"closed after {got} of {self.size} bytes"
            got += part
        self.wire.close()
        return rest


def wait_until_gone(path):
    while path.exists():
        os.stat(path.parent)


def first_segment(log):
    path = log.dir / f"{0:020d}.log"
    return path, path.read_bytes()


def test_a_reader_in_the_middle_of_a_deleted_segment_finishes_its_read(server, log):
    path, content = first_segment(log)
    reader = SlowReader(server)
    wire = Wire(server.bootstrap_servers)
    make = DELETE_RECORDS.Request
    asked = make(
        topics=[make.Topics(name="big", partitions=[make.Topics.Partitions(partition_index=0, offset=BATCHES)])],
        timeout_ms=1000,
    )
    (answer,) = wire.call(DELETE_RECORDS, 2, asked).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (Errors.NONE, BATCHES)
    log.delete_old_segments()
    wait_until_gone(path.with_name(path.name + ".deleted"))
    assert not path.exists()
    assert content in reader.finish()
    assert fetch(wire, "big").error_code == Errors.OFFSET_OUT_OF_RANGE
    assert end_offset(wire, "big") == BATCHES
    wire.close()


def test_a_reader_in_the_middle_of_a_deleted_topic_finishes_its_read(server, log):
    path, content = first_segment(log)
    reader = SlowReader(server)
    wire = Wire(server.bootstrap_servers)
    make = DELETE_TOPICS.Request
    answer = wire.call(DELETE_TOPICS, 6, make(topics=[make.Topics(name="big")], timeout_ms=1000)).responses[0]
    assert answer.error_code == Errors.NONE
    while list(server.services.config.log_dirs[0].glob("big-0.*-delete")):
        os.stat(path.parent.parent)
    assert content in reader.finish()
    wire.close()


def test_a_topic_that_was_marked_while_no_broker_ran_is_kept_if_topics_may_not_be_deleted(tmp_path):
    server = start_broker(tmp_path)
    with Wire(server.bootstrap_servers) as wire:
        make_topic(wire, "t")
        assert produce(wire, "t", batch(b"kept")).error_code == Errors.NONE
    server.stop()
    tree = LocalTree(tmp_path / FILE_NAME)
    tree.commit([Create(paths.deletion_mark("t"))])
    tree.close()
    server = start_broker(tmp_path, delete_topic_enable="false")
    try:
        with Wire(server.bootstrap_servers) as wire:
            assert fetch_values(wire, "t") == [b"kept"]
        assert not server._tree.exists(paths.deletion_mark("t"))
    finally:
        server.stop()


def set_topic(wire, topic, **settings):
    make = INCREMENTAL_ALTER_CONFIGS.Request
    configs = [
        make.Resources.Configs(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    asked = make(resources=[make.Resources(resource_type=2, resource_name=topic, configs=configs)])
    (answer,) = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, asked).responses
    assert answer.error_code == Errors.NONE


def test_retention_uses_the_settings_that_a_client_changed_last(server, log):
    wire = Wire(server.bootstrap_servers)
    assert log.delete_old_segments() == 0
    set_topic(wire, "big", retention_bytes=str(SEGMENT))
    assert log.delete_old_segments() > 0
    assert log.size >= SEGMENT
    assert fetch(wire, "big", 0).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert bytes([BATCHES - 1]) * 1000 in bytes(fetch(wire, "big", BATCHES - 1).records)
    set_topic(wire, "big", retention_bytes="-1", retention_ms="1")
    log.delete_old_segments()  # the records have timestamps of 2020
    assert log.log_start_offset == log.log_end_offset == BATCHES
    wire.close()


def test_retention_runs_by_itself(tmp_path):
    server = start_broker(tmp_path, log_retention_check_interval_ms=5, log_initial_task_delay_ms=1)
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "old")
    produce(wire, topic, batch(b"of 2020"))
    log = server.services.replicas.get("old", 0).log
    while log.log_start_offset == 0:
        os.stat(tmp_path)
    assert log.log_start_offset == 1
    wire.close()
    server.stop()
