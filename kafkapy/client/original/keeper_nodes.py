"""Znodes, read and written with a limit to how long ZooKeeper may take. Imports kazoo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

log = logging.getLogger(__name__)

# Is called once, by a thread of kazoo's, when what was read has changed, or may have while the connection was lost.
Watch = Callable[[Any], None]


class KeeperNodes:
    """All calls raise KazooException where ZooKeeper cannot answer, KazooTimeoutError when an answer takes more than
    `patience_s`: kazoo alone would wait for a lost connection for ever."""

    def __init__(self, client: Any, patience_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
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

    def exists(self, path: str) -> bool:
        return self._wait(self._client.exists_async(path)) is not None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Sorted; none where there is no node."""
        try:
            names: list[str] = self._wait(self._client.get_children_async(path, watch=watch))
            return sorted(names)
        except NoNodeError:
            return self.children(path, watch) if self._made_meanwhile(path, watch) else []

    def data(self, path: str, watch: Watch | None = None) -> bytes | None:
        """None where there is no node; what is null is empty."""
        try:
            data, _ = self._wait(self._client.get_async(path, watch=watch))
        except NoNodeError:
            return self.data(path, watch) if self._made_meanwhile(path, watch) else None
        return data or b""

    def data_of(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Of those that are there, by path. All are asked for at once: half the work of one after the other."""
        found = {}
        for path, asked in [(path, self._client.get_async(path)) for path in paths]:
            try:
                data, _ = self._wait(asked)
            except NoNodeError:
                continue
            found[path] = data or b""
        return found

    def write(self, path: str, data: bytes) -> None:
        """Whether it is there already or not."""
        try:
            self._wait(self._client.set_async(path, data))
        except NoNodeError:
            try:
                self._make(path, data)
            except NodeExistsError:
                self._wait(self._client.set_async(path, data))

    def make_ours(self, path: str, data: bytes) -> int | None:
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

    def remove_ours(self, path: str) -> None:
        """Unless it is another's."""
        try:
            _, stat = self._wait(self._client.get_async(path))
            if stat.ephemeralOwner == self.session:
                self._wait(self._client.delete_async(path))
        except NoNodeError:
            pass

    def say_once(self, path: str, data: bytes, problem: str) -> None:
        """Of a node that nobody can make sense of, each time that it holds something else."""
        if (path, data) not in self._broken:
            self._broken.add((path, data))
            log.error("%s in ZooKeeper is left out: %s", path, problem)

    def _made_meanwhile(self, path: str, watch: Watch | None) -> bool:
        """Whether a node that was not there is; if not, `watch` is called when it will be."""
        return watch is not None and self._wait(self._client.exists_async(path, watch=watch)) is not None

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

    def _wait(self, asked: Any) -> Any:
        return asked.get(timeout=self._patience_s)
