"""The clients of `kafkapy bench commit`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.client.groups.coordinators import GROUP, Coordinators
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.client.raw import requests
from kafkapy.client.raw.connection import RawConnection
from kafkapy.client.raw.requests import COMMIT_VERSIONS
from kafkapy.protocol.apis import OFFSET_COMMIT
from kafkapy.tools.bench.board import Slot
from kafkapy.tools.bench.leaders import Place, open_raw, refuse
from kafkapy.tools.bench.pipeline import Lane, drive

OFFSET = 12345


@dataclass
class CommitJob:
    """Commits offsets of all partitions of `place` for each group. Each group has its own connection with one request
    in flight. `requests` is the most commits to send, and `rate` the commits per second; None: no limit."""

    place: Place
    groups: tuple[str, ...]
    requests: int | None = None
    rate: float | None = None

    def prepare(self) -> None:
        with self.place.cluster() as cluster:
            admin = GroupAdmin(cluster)
            coordinators = Coordinators(cluster, GROUP)
            offset = OffsetAndMetadata(OFFSET)
            self._lanes = []
            for group in self.groups:
                # This commit creates the group, and is repeated until the coordinator has loaded its partition.
                admin.commit(group, {(self.place.topic, index): offset for index in self.place.partitions})
                self._lanes.append(self._lane(cluster, group, coordinators.node_of(group)))

    def _lane(self, cluster: Cluster, group: str, node: int) -> Lane:
        connection, version = open_raw(cluster, node, OFFSET_COMMIT, COMMIT_VERSIONS)
        topic, partitions = self.place.topic, len(self.place.partitions)
        frame = requests.commit(group, topic, partitions, OFFSET, version=version, client=connection.client)
        connection.socket.sendall(frame)
        reply = connection.read_frame()
        _explain(connection, version, reply)
        expected = len(reply).to_bytes(4, "big") + reply
        is_good = partial(_is_good, connection, version, expected)
        return Lane(connection, [frame], 1, len(expected), is_good, partial(_explain, connection, version))

    def run(self, slot: Slot) -> None:
        drive(
            self._lanes,
            slot,
            lambda count: slot.count(count, 0, count),
            requests=self.requests,
            rate=self.rate,
        )
        for lane in self._lanes:
            lane.connection.close()


def _is_good(connection: RawConnection, version: int, expected: bytes, reply: memoryview) -> bool:
    """Return True if the response has no error. It may differ from `expected`, for example by a throttle time."""
    if reply == expected:
        return True
    return not any(code for _, _, code in _codes(connection, version, bytes(reply[4:])))


def _codes(connection: RawConnection, version: int, frame: bytes) -> list[tuple[str, int, int]]:
    """Return (topic, partition, error code) of each partition in a response."""
    response = connection.decode(OFFSET_COMMIT, version, frame)
    return [(topic.name, one.partition_index, one.error_code) for topic in response.topics for one in topic.partitions]


def _explain(connection: RawConnection, version: int, frame: bytes) -> None:
    for topic, partition, code in _codes(connection, version, frame):
        refuse(topic, partition, code)
