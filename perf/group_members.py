"""Members of one group, with prebuilt requests and one epoll, so that the client takes little CPU time.

In a rebalance the members do what clients of a stable group do: every member joins with new metadata and sends
SyncGroup as soon as its join has a response; the SyncGroup request of the leader contains all assignments.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import sys
import time
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kafkapy.protocol.headers import read_response_header, request_frame
from perf import frames
from perf.raw_client import TIMEOUT, RawClient, Refused, check

JOIN_VERSION, SYNC_VERSION, FIND_VERSION = 9, 5, 4
SESSION_MS = 60_000
PROTOCOL = "range"
NOT_YET = (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR)

_SIZE = struct.Struct(">i")
# The beginning of flexible responses: correlation id, no tags, throttle time, error code; then a join's generation.
_JOINED = struct.Struct(">ixihi")
_SYNCED = struct.Struct(">ixih")
# A generation that occurs nowhere else in a prebuilt request: it marks where the real one goes.
_MARK = 0x5A5A5A5A
_ROUND = b"round 00000000"


class GroupMembers:
    """`count` connections, each a member of one group. After construction the group is stable, in one generation."""

    def __init__(self, port: int, group: str, count: int) -> None:
        wanted = count + 256
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        self._group = group
        with RawClient(port) as client:
            _wait_for_coordinator(client, group)
        self._clients = [RawClient(port) for _ in range(count)]
        self._sockets = [client.socket for client in self._clients]
        self._epoll = select.epoll()
        for sock in self._sockets:
            sock.setblocking(False)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._number = {sock.fileno(): number for number, sock in enumerate(self._sockets)}
        self._partial = [b""] * count
        self._round = 0
        self._ids: list[str] = []
        self._leader = 0
        self._get_ids()
        self._join_for_the_first_time()

    def __enter__(self) -> GroupMembers:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for sock in self._sockets:
            sock.close()

    def rebalance(self) -> float:
        """Rebalance the group; return the seconds from sending the first join to reading the last assignment."""
        self._round += 1
        mark = b"round %08d" % self._round
        joins = [frame.replace(_ROUND, mark) for frame in self._joins]
        left = len(joins)
        is_joined = bytearray(left)
        began = time.perf_counter()
        for number, frame in enumerate(joins):
            self._send(number, frame)
        while left:
            for number, answer in self._answers():
                if is_joined[number]:
                    check(_SYNCED.unpack_from(answer)[2], "a sync")
                    left -= 1
                    continue
                _, _, code, generation = _JOINED.unpack_from(answer)
                check(code, "a join")
                is_joined[number] = 1
                before, after = self._syncs[number]
                self._send(number, before + _SIZE.pack(generation) + after)
        return time.perf_counter() - began

    # --- forming the group

    def _get_ids(self) -> None:
        for number in range(len(self._sockets)):
            self._send(number, self._join_frame(""))
        ids: dict[int, str] = {}
        while len(ids) < len(self._sockets):
            for number, answer in self._answers():
                joined = _decode(JOIN_GROUP, JOIN_VERSION, answer)
                assert joined.error_code == Errors.MEMBER_ID_REQUIRED
                ids[number] = joined.member_id
        self._ids = [ids[number] for number in range(len(ids))]
        self._joins = [self._join_frame(id) for id in self._ids]

    def _join_for_the_first_time(self) -> None:
        """Form the group. Without an initial delay the first member forms a generation alone and joins again with the
        others."""
        for number, frame in enumerate(self._joins):
            self._send(number, frame)
        generations: dict[int, set[int]] = {}
        sizes: dict[int, int] = {}
        leader, newest = 0, -1
        while sizes.get(newest) != len(self._sockets) or len(generations[newest]) < len(self._sockets):
            for number, answer in self._answers():
                joined = _decode(JOIN_GROUP, JOIN_VERSION, answer)
                check(joined.error_code, "the first join")
                newest = joined.generation_id
                generations.setdefault(newest, set()).add(number)
                if joined.leader == joined.member_id:
                    leader, sizes[newest] = number, len(joined.members)
                if 0 < sizes.get(newest, 0) < len(self._sockets):
                    for again in generations.pop(newest):
                        self._send(again, self._joins[again].replace(_ROUND, b"round again   "))
                    generations[newest] = set()
        self._syncs = [self._sync_frame(number, leads=number == leader) for number in range(len(self._ids))]
        for number, (before, after) in enumerate(self._syncs):
            self._send(number, before + _SIZE.pack(newest) + after)
        left = len(self._sockets)
        while left:
            for _, answer in self._answers():
                check(_SYNCED.unpack_from(answer)[2], "the first sync")
                left -= 1

    def _join_frame(self, member_id: str) -> bytes:
        subscription = SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a-topic-to-read"], user_data=_ROUND), 1)
        request = JOIN_GROUP.Request
        return request_frame(
            JOIN_GROUP,
            JOIN_VERSION,
            1,
            frames.CLIENT,
            request(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[request.Protocols(name=PROTOCOL, metadata=subscription)],
            ),
        )

    def _sync_frame(self, number: int, *, leads: bool) -> tuple[bytes, bytes]:
        """Return the parts of the request before and after the generation."""
        request = SYNC_GROUP.Request
        mine = ASSIGNMENT.Message.AssignedPartitions(topic="a-topic-to-read", partitions=[number])
        assignment = ASSIGNMENT.encode(ASSIGNMENT.Message(assigned_partitions=[mine]), 1)
        given = [request.Assignments(member_id=id, assignment=assignment) for id in self._ids] if leads else []
        frame = request_frame(
            SYNC_GROUP,
            SYNC_VERSION,
            1,
            frames.CLIENT,
            request(
                group_id=self._group,
                generation_id=_MARK,
                member_id=self._ids[number],
                protocol_type="consumer",
                protocol_name=PROTOCOL,
                assignments=given,
            ),
        )
        before, mark, after = frame.partition(_SIZE.pack(_MARK))
        assert mark
        return before, after

    # --- bytes

    def _send(self, number: int, frame: bytes) -> None:
        sock = self._sockets[number]
        sent = 0
        while sent < len(frame):
            try:
                sent += sock.send(frame[sent:])
            except BlockingIOError:  # the leader's assignments fill its socket
                select.select([], [sock], [], TIMEOUT)

    def _answers(self) -> list[tuple[int, bytes]]:
        """Wait for responses; return (number of the member, response without its size) for each complete one."""
        events = self._epoll.poll(TIMEOUT)
        if not events:
            raise Refused(f"no member got a response for {TIMEOUT:.0f} s")
        whole = []
        for fd, _ in events:
            number = self._number[fd]
            data = self._partial[number] + _receive(self._sockets[number])
            while len(data) >= 4 and len(data) - 4 >= _SIZE.unpack_from(data)[0]:
                end = 4 + _SIZE.unpack_from(data)[0]
                whole.append((number, data[4:end]))
                data = data[end:]
            self._partial[number] = data
        return whole


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 20)
    if not data:
        raise ConnectionError("the broker closed a member's connection")
    return data


def _decode(api: Any, version: int, frame: bytes) -> Any:
    _, body = read_response_header(frame, api, version)
    return api.decode_response(frame, version, body)


def _wait_for_coordinator(client: RawClient, group: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while True:
        request = FIND_COORDINATOR.Request(key_type=0, coordinator_keys=[group])
        code = client.ask(FIND_COORDINATOR, FIND_VERSION, request).coordinators[0].error_code
        if not code:
            # A sync of an unknown member shows whether the coordinator is ready.
            message = SYNC_GROUP.Request(
                group_id=group, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name=PROTOCOL
            )
            code = client.ask(SYNC_GROUP, SYNC_VERSION, message).error_code
            if code == Errors.UNKNOWN_MEMBER_ID:
                return
        if code not in (*NOT_YET, Errors.REBALANCE_IN_PROGRESS) or time.monotonic() > deadline:
            check(code, f"finding the coordinator of {group}")
        time.sleep(0.05)


def main(port: int, count: int, every_s: float) -> None:
    """Print `ready` when the group is formed, then rebalance it every `every_s` seconds until standard input ends."""
    # The measured producer must not wait for a core because these many clients use it.
    os.nice(10)
    with GroupMembers(port, f"beside-{count}", count) as members:
        took = []
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], every_s)[0]:
            took.append(members.rebalance())
        print(len(took), sum(took), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
