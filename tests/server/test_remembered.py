"""Clients that invent names cannot make a broker remember more than its limits."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import API_VERSIONS, FIND_COORDINATOR, INIT_PRODUCER_ID, JOIN_GROUP, OFFSET_COMMIT
from kafkapy.protocol.headers import request_frame
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import make_topic, start_broker

ONE_PARTITION = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}


def join(wire: Wire, group: str) -> int:
    make = JOIN_GROUP.Request
    request = make(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[make.Protocols(name="range", metadata=b"")],
    )
    return wire.call(JOIN_GROUP, 5, request).error_code


def commit(wire: Wire, group: str) -> int:
    make = OFFSET_COMMIT.Request
    partition = make.Topics.Partitions(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [make.Topics(name="t", partitions=[partition])]
    request = make(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    (answer,) = wire.call(OFFSET_COMMIT, 7, request).topics[0].partitions
    return answer.error_code


def init(wire: Wire, transactional_id: str) -> int:
    request = INIT_PRODUCER_ID.Request(
        transactional_id=transactional_id, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    return wire.call(INIT_PRODUCER_ID, 4, request).error_code


def coordinator(wire: Wire, key_type: int) -> None:
    """Wait until the broker is the coordinator of all groups (key type 0) or of all transactional ids (1)."""
    request = FIND_COORDINATOR.Request(key_type=key_type, coordinator_keys=["x"])
    eventually(lambda: wire.call(FIND_COORDINATOR, 4, request).coordinators[0].error_code == Errors.NONE)


def test_no_more_groups_than_the_setting_allows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = start_broker(tmp_path, kafkapy_max_groups=3, **ONE_PARTITION)
    try:
        with Wire(server.bootstrap_servers) as wire:
            make_topic(wire, "t")
            coordinator(wire, 0)
            eventually(lambda: join(wire, "g-1") == Errors.MEMBER_ID_REQUIRED)
            assert commit(wire, "g-2") == Errors.NONE
            assert join(wire, "g-3") == Errors.MEMBER_ID_REQUIRED
            for _ in range(5):
                assert join(wire, "g-4") == Errors.POLICY_VIOLATION
                assert commit(wire, "g-5") == Errors.POLICY_VIOLATION
            assert join(wire, "g-2") == Errors.MEMBER_ID_REQUIRED
            assert commit(wire, "g-2") == Errors.NONE
        assert [line for line in caplog.messages if "is refused" in line] == [
            "the group 'g-4' is refused: there are 3, and kafkapy.max.groups allows no more"
        ]
    finally:
        server.stop()


def test_no_more_transactional_ids_than_the_setting_allows(tmp_path: Path) -> None:
    server = start_broker(tmp_path, kafkapy_max_transactional_ids=2, **ONE_PARTITION)
    try:
        with Wire(server.bootstrap_servers) as wire:
            coordinator(wire, 1)
            eventually(lambda: init(wire, "one") == Errors.NONE)
            assert init(wire, "two") == Errors.NONE
            assert init(wire, "three") == Errors.POLICY_VIOLATION
            assert init(wire, "two") == Errors.NONE
    finally:
        server.stop()


def test_a_hundred_thousand_client_ids_leave_nothing_behind(tmp_path: Path) -> None:
    """A client id is free text, and may be another in each request."""
    server = start_broker(tmp_path)
    try:
        host, _, port = server.bootstrap_servers.partition(":")
        request = API_VERSIONS.Request(client_software_name="c", client_software_version="1")
        with socket.create_connection((host, int(port))) as sock:

            def send(first: int, last: int) -> None:
                frames = [
                    request_frame(API_VERSIONS, 3, number, f"client-{number}-" + "x" * 50, request)
                    for number in range(first, last)
                ]
                sock.sendall(b"".join(frames))
                for _ in frames:
                    size = int.from_bytes(_exactly(sock, 4), "big")
                    _exactly(sock, size)

            send(0, 2000)
            before = _objects()
            for first in range(2000, 102_000, 2000):
                send(first, first + 2000)
            assert _objects() - before < 5000
    finally:
        server.stop()


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part
        data += part
    return data


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())
