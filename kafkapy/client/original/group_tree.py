"""A group's znodes, and those of brokers and topics, as the original consumer reads and writes them.

Every call waits for ZooKeeper and raises KazooException where it cannot answer; `watch` is called once, by a thread of
kazoo's, when what was read has changed, or may have while the connection was lost. Imports kazoo: load it only where
there is a ZooKeeper.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.errors import ConsumerIdTaken
from kafkapy.client.original.layouts import Layout, layout_of_topic, partitions_in
from kafkapy.client.original.subscriptions import Subscription, read_subscription
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.addresses import host_port

log = logging.getLogger(__name__)

Watch = Callable[[Any], None]

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
_GLANCE_S = 0.05


class GroupTree:
    def __init__(self, client: Any, group: str, *, patience_s: float) -> None:
        """`patience_s` is how long each answer may take: then KazooTimeoutError is raised."""
        self._client = client
        self._patience_s = patience_s
        self._group = f"/consumers/{group}"
        self._ids = f"{self._group}/ids"
        self._session: int | None = None
        self._broken: set[tuple[str, bytes]] = set()

    @property
    def session(self) -> int | None:
        """The number of the last session that has begun; another one means that everything ephemeral is gone. Without
        a connection nobody knows whether it goes on."""
        client_id = self._client.client_id
        if client_id is not None:
            self._session = client_id[0]
        return self._session

    def has_brokers(self) -> bool:
        """Whether a cluster lives here, or has lived here."""
        return self._wait(self._client.exists_async(BROKERS)) is not None

    def register(self, consumer: str, data: bytes, *, patience_s: float = 0.0) -> int:
        """The session that it is bound to. Raises ConsumerIdTaken when somebody else still has the id after
        `patience_s`."""
        path = f"{self._ids}/{consumer}"
        deadline = time.monotonic() + patience_s
        while (session := self._make_ours(path, data)) is None:
            if time.monotonic() >= deadline:
                raise ConsumerIdTaken(
                    f"{path} in ZooKeeper is there: another consumer of the group has this id. Choose another "
                    "consumer.id, or wait until the session of the one that had it is over."
                )
            time.sleep(_GLANCE_S)
        return session

    def members(self, watch: Watch) -> dict[str, Subscription]:
        """Those that can be read, by consumer id; the others are named in the log, and get nothing."""
        found = {}
        for consumer in self._children(self._ids, watch):
            path = f"{self._ids}/{consumer}"
            data = self._data(path)
            if data is None:
                continue  # it has left
            try:
                found[consumer] = read_subscription(data)
            except ValueError as error:
                self._say_once(path, data, str(error))
        return found

    def topics(self, watch: Watch) -> list[str]:
        return self._children(TOPICS, watch)

    def partitions(self, topic: str, watch: Watch) -> list[str]:
        """In their order; none of a topic that is not there or whose znode is broken. KafkaError for a tree of 0.7."""
        path = f"{TOPICS}/{topic}"
        try:
            data, _ = self._wait(self._client.get_async(path, watch=watch))
        except NoNodeError:
            self._wait(self._client.exists_async(path, watch=watch))
            return []
        if layout_of_topic(data or b"") is Layout.V07:
            raise KafkaError(
                Errors.UNSUPPORTED_VERSION,
                f"{path} in ZooKeeper is empty, as Kafka 0.7 has it, whose brokers this consumer cannot read from",
            )
        try:
            return partitions_in(path, data)
        except KafkaError as error:
            self._say_once(path, data, str(error))
            return []

    def brokers(self) -> list[str]:
        """HOST:PORT of those that listen in plain text."""
        found = []
        for name in self._children(BROKERS, None):
            path = f"{BROKERS}/{name}"
            data = self._data(path)
            try:
                shape = json.loads(data or b"{}")
                if shape.get("host") and shape.get("port", -1) > 0:
                    found.append(host_port(shape["host"], shape["port"]))
            except (ValueError, TypeError, AttributeError):
                self._say_once(path, data or b"", f"{data!r} is not the registration of a broker")
        return found

    def claim(self, partition: Partition, thread: Thread) -> bool:
        """Whether the partition is ours now."""
        return self._make_ours(self.owner_path(partition), str(thread).encode()) is not None

    def owner(self, partition: Partition, watch: Watch) -> bytes | None:
        """Who has it, in the words of the znode."""
        try:
            data: bytes
            data, _ = self._wait(self._client.get_async(self.owner_path(partition), watch=watch))
        except NoNodeError:
            return None
        return data

    def release(self, partition: Partition) -> None:
        """Unless it is another's."""
        path = self.owner_path(partition)
        try:
            _, stat = self._wait(self._client.get_async(path))
            if stat.ephemeralOwner == self.session:
                self._wait(self._client.delete_async(path))
        except NoNodeError:
            pass

    def owner_path(self, partition: Partition) -> str:
        return f"{self._group}/owners/{partition[0]}/{partition[1]}"

    def offset(self, partition: Partition) -> int | None:
        """What the group has committed. Raises KafkaError that names the path where that is no offset."""
        path = self._offset_path(partition)
        data = self._data(path)
        if data is None:
            return None
        if data.isdigit() and len(data) < 20:
            return int(data)
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{path} in ZooKeeper has {data[:100]!r}, which is no offset")

    def set_offset(self, partition: Partition, offset: int) -> None:
        path = self._offset_path(partition)
        data = str(offset).encode()
        try:
            self._wait(self._client.set_async(path, data))
        except NoNodeError:
            try:
                self._make(path, data)
            except NodeExistsError:
                self._wait(self._client.set_async(path, data))

    def _offset_path(self, partition: Partition) -> str:
        return f"{self._group}/offsets/{partition[0]}/{partition[1]}"

    def _children(self, path: str, watch: Watch | None) -> list[str]:
        try:
            names: list[str] = self._wait(self._client.get_children_async(path, watch=watch))
            return sorted(names)
        except NoNodeError:
            if watch is not None:
                self._wait(self._client.exists_async(path, watch=watch))
            return []

    def _wait(self, asked: Any) -> Any:
        return asked.get(timeout=self._patience_s)

    def _data(self, path: str) -> bytes | None:
        try:
            data, _ = self._wait(self._client.get_async(path))
        except NoNodeError:
            return None
        return data or b""

    def _make_ours(self, path: str, data: bytes) -> int | None:
        """Makes an ephemeral node, and tells its session; None when it is another's. One of ours may be there: an
        answer was lost."""
        try:
            self._make(path, data, ephemeral=True)
        except NodeExistsError:
            pass
        try:
            found, stat = self._wait(self._client.get_async(path))
            if stat.ephemeralOwner != self.session:
                return None
            if found != data:
                self._wait(self._client.set_async(path, data))
        except NoNodeError:
            return None
        return int(stat.ephemeralOwner)

    def _make(self, path: str, data: bytes | None, *, ephemeral: bool = False) -> None:
        """With the nodes above it, which are null as Kafka's are."""
        try:
            self._wait(self._client.create_async(path, data, ephemeral=ephemeral))
        except NoNodeError:
            try:
                self._make(path.rpartition("/")[0], None)
            except NodeExistsError:
                pass  # another member was faster
            self._wait(self._client.create_async(path, data, ephemeral=ephemeral))

    def _say_once(self, path: str, data: bytes, problem: str) -> None:
        if (path, data) not in self._broken:
            self._broken.add((path, data))
            log.error("%s in ZooKeeper is left out: %s", path, problem)
