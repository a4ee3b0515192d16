"""Reading and writing znodes with a time limit for each response. Imports kazoo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

log = logging.getLogger(__name__)

# Called once, by a kazoo thread, when the node that was read changes, or may have changed while disconnected.
Watch = Callable[[Any], None]


class Znodes:
    """Reads and writes znodes with a time limit.

    All methods raise KazooException for errors, and KazooTimeoutError if ZooKeeper takes longer than `timeout_s`.
    Without the limit, kazoo would wait forever for a lost connection.
    """

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._session: int | None = None
        self._broken: set[tuple[str, bytes]] = set()

    @property
    def session(self) -> int | None:
        """The id of the current or last ZooKeeper session, None before the first.

        A new id means that all ephemeral nodes of the old session are gone. While the client is disconnected, the
        session may have expired already.
        """
        client_id = self._client.client_id
        if client_id is not None:
            self._session = client_id[0]
        return self._session

    def exists(self, path: str) -> bool:
        """Return True if the znode exists."""
        return self._wait(self._client.exists_async(path)) is not None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted, or an empty list if the znode does not exist.

        `watch` is called when children are added or removed, or when the missing znode is created.
        """
        try:
            names: list[str] = self._wait(self._client.get_children_async(path, watch=watch))
            return sorted(names)
        except NoNodeError:
            return self.children(path, watch) if self._created_meanwhile(path, watch) else []

    def data(self, path: str, watch: Watch | None = None) -> bytes | None:
        """Return a znode's data, b"" if the data is null, or None if the znode does not exist.

        `watch` is called when the data changes, or when the missing znode is created.
        """
        try:
            data, _ = self._wait(self._client.get_async(path, watch=watch))
        except NoNodeError:
            return self.data(path, watch) if self._created_meanwhile(path, watch) else None
        return data or b""

    def data_of(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the data of each existing znode by path. Requests are pipelined, which halves the time.

        Paths without a znode are left out.
        """
        found = {}
        for path, asked in [(path, self._client.get_async(path)) for path in paths]:
            try:
                data, _ = self._wait(asked)
            except NoNodeError:
                continue
            found[path] = data or b""
        return found

    def write(self, path: str, data: bytes) -> None:
        """Set a znode's data. Create the znode if it does not exist."""
        try:
            self._wait(self._client.set_async(path, data))
        except NoNodeError:
            try:
                self._create(path, data)
            except NodeExistsError:
                self._wait(self._client.set_async(path, data))

    def create_own(self, path: str, data: bytes) -> int | None:
        """Create an ephemeral znode and return the id of the session that owns it.

        Return None if another session owns the znode. A znode that this session already owns is accepted, because the
        response to an earlier attempt may have been lost.
        """
        try:
            self._create(path, data, ephemeral=True)
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

    def delete_own(self, path: str) -> None:
        """Delete an ephemeral znode, unless another session owns it."""
        try:
            _, stat = self._wait(self._client.get_async(path))
            if stat.ephemeralOwner == self.session:
                self._wait(self._client.delete_async(path))
        except NoNodeError:
            pass

    def log_once(self, path: str, data: bytes, problem: str) -> None:
        """Log that a malformed znode is ignored. The same data of a znode is logged only once."""
        if (path, data) not in self._broken:
            self._broken.add((path, data))
            log.error("%s in ZooKeeper is ignored: %s", path, problem)

    def _created_meanwhile(self, path: str, watch: Watch | None) -> bool:
        """Return True if a znode that was missing now exists. If not, `watch` is called when it is created.

        Always False without a watch.
        """
        return watch is not None and self._wait(self._client.exists_async(path, watch=watch)) is not None

    def _create(self, path: str, data: bytes | None, *, ephemeral: bool = False) -> None:
        """Create a znode.

        Missing parents are created with null data, like Kafka's. Raise NodeExistsError if it exists.
        """
        try:
            self._wait(self._client.create_async(path, data, ephemeral=ephemeral))
        except NoNodeError:
            try:
                self._create(path.rpartition("/")[0], None)
            except NodeExistsError:
                pass  # another member was faster
            self._wait(self._client.create_async(path, data, ephemeral=ephemeral))

    def _wait(self, asked: Any) -> Any:
        """Return the result of a pending kazoo call. Raise its error, or KazooTimeoutError after the time limit."""
        return asked.get(timeout=self._timeout_s)
