"""Prebuilt requests of consumers that commit, and requests for their committed offsets."""

from __future__ import annotations

import time

from kafkapy.client.raw import requests
from kafkapy.errors import Errors
from kafkapy.protocol.apis import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from kafkapy.protocol.headers import read_response_header
from perf import frames
from perf.raw_client import TIMEOUT, RawClient, Refused

COMMIT_VERSION = 8
FETCH_VERSION = 7
NOT_READY = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
    Errors.NOT_LEADER_OR_FOLLOWER,
)


def commit(group: str, topic: str, partitions: int, offset: int = 12345) -> bytes:
    """Return a request that commits all partitions of a topic, from a consumer that is not a member of a group."""
    return requests.commit(group, topic, partitions, offset, version=COMMIT_VERSION, client=frames.CLIENT)


def commit_once(client: RawClient, frame: bytes) -> int:
    """Send a commit, again until the coordinator is ready; return the length of the response with its size field."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        client.socket.sendall(frame)
        reply = client.read_frame()
        _, body = read_response_header(reply, OFFSET_COMMIT, COMMIT_VERSION)
        answer = OFFSET_COMMIT.decode_response(reply, COMMIT_VERSION, body)
        codes = {one.error_code for topic in answer.topics for one in topic.partitions}
        if codes == {Errors.NONE}:
            return len(reply) + 4
        if not codes <= {Errors.NONE, *NOT_READY} or time.monotonic() > deadline:
            raise Refused(f"a commit failed with error codes {codes}")
        time.sleep(0.005)


def committed(client: RawClient, group: str, topic: str, partitions: int) -> list[int]:
    """Return the group's committed offset of each partition; ask again until the coordinator has loaded the group."""
    request = OFFSET_FETCH.Request
    asked = request.Topics(name=topic, partition_indexes=list(range(partitions)))
    deadline = time.monotonic() + TIMEOUT
    while True:
        message = request(group_id=group, topics=[asked], require_stable=False)
        answer = client.ask(OFFSET_FETCH, FETCH_VERSION, message)
        if answer.error_code == Errors.NONE:
            return [one.committed_offset for one in answer.topics[0].partitions]
        if answer.error_code not in NOT_READY or time.monotonic() > deadline:
            raise Refused(f"offsets of {group} cannot be fetched: error code {answer.error_code}")
        time.sleep(0.005)


def find_coordinator(client: RawClient, group: str) -> None:
    """Let the broker create `__consumer_offsets`, and wait until it has."""
    deadline = time.monotonic() + TIMEOUT
    while client.ask(FIND_COORDINATOR, 2, FIND_COORDINATOR.Request(key=group, key_type=0)).error_code:
        if time.monotonic() > deadline:
            raise Refused("no coordinator")
        time.sleep(0.005)
