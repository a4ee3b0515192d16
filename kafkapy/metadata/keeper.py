"""A session with ZooKeeper through kazoo, as far as the tree needs it: pipelined reads, and changes as a whole.

Everything here is used by one thread, the tree's; `on_state` and `on_event` are called by kazoo's threads and must
only enqueue. Imports kazoo: load it only where there is a ZooKeeper. Source: Kafka's ZooKeeperClient, KafkaZkClient.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.exceptions import NoChildrenForEphemeralsError as NoChildrenError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings, NoChroot, close, connected, named
from kafkapy.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    TreeError,
    TreeUnavailable,
    split_path,
)

log = logging.getLogger("kafkapy.metadata.zookeeper")

CONNECTED = KazooState.CONNECTED
SUSPENDED = KazooState.SUSPENDED
LOST = KazooState.LOST

# What leaves open whether a change was made.
Unanswered = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError, KazooTimeoutError)

# As ZooKeeper's PathUtils has it.
_ILLEGAL = re.compile(r"/\.\.?(/|$)|[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_EPHEMERAL, _SEQUENCE = 1, 2
# ZooKeeper's nodes of its own, which are nobody's business.
_OWN_NODE = "zookeeper"
_OPEN_TO_ALL = "/consumers"
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")


class Session:
    """Connected from construction, anew after each loss, until `close`. Raises KeeperError if nobody answers."""

    def __init__(
        self, settings: KeeperSettings, on_state: Callable[[str], None], on_event: Callable[[str, str], None]
    ) -> None:
        """`on_event(kind, path)` says what a watch saw: kind is CREATED, CHANGED, DELETED or CHILD."""
        self._settings = settings
        self._chroot = settings.chroot
        self._make_chroot()
        self._client = connected(settings, settings.servers + self._chroot, on_state)
        self._on_event = on_event
        self.hidden: set[str] = set()  # paths that may not be read with our login

    @property
    def id(self) -> int | None:
        """The session's number, as a node's owner shows it; None while there is no connection."""
        client_id = self._client.client_id
        return client_id[0] if client_id is not None else None

    @property
    def last_change(self) -> int:
        """The greatest zxid that ZooKeeper has told of."""
        return int(self._client.last_zxid)

    def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone at once, if ZooKeeper can be told."""
        close(self._client)

    def revive(self) -> None:
        """kazoo gives up where a login was refused, also when the server only went away in the middle of it."""
        loop = self._client._connection._connection_routine
        if loop is not None and not loop.is_alive():
            self._client.start_async()

    def read(self, path: str, *, watched: bool = True) -> Any:
        """What `node` waits for; if it is watched, a change of the data is told once from now on."""
        return self._client.get_async(path, watch=self._watched if watched else None)

    def read_children(self, path: str) -> Any:
        """What `children` waits for; from now on a child that comes or goes is told once."""
        return self._client.get_children_async(path, watch=self._watched)

    def node(self, path: str, asked: Any, timeout: float) -> Node | None:
        """The node that was asked for; None if there is none that we may see. Raises KazooException."""
        try:
            data, stat = asked.get(timeout=timeout)
        except NoNodeError:
            return None
        except NoAuthError:
            self._hide(path)
            return None
        return self._node(data, stat)

    def children(self, path: str, asked: Any, timeout: float) -> list[str] | None:
        """The names of the children that were asked for; None if there is no node that we may see."""
        try:
            names: list[str] = asked.get(timeout=timeout)
        except NoNodeError:
            return None
        except NoAuthError:
            self._hide(path)
            return None
        return [name for name in names if path != "/" or name != _OWN_NODE]

    def change(self, operations: Sequence[Operation]) -> Any:
        """What `outcome` waits for. Raises TreeError or ValueError for what ZooKeeper need not be asked."""
        requests = [self._request(operation) for operation in operations]
        result = self._client.handler.async_result()
        self._client._call(wire.Transaction(requests), result)
        return result

    def outcome(self, operations: Sequence[Operation], asked: Any, timeout: float) -> list[Any]:
        """The results that the tree gives, raw: a path, a Node, or None where only ZooKeeper's yes is known.

        Raises TreeError if the change was refused, one of Unanswered if nobody knows.
        """
        raw = asked.get(timeout=timeout)
        for operation, result in zip(operations, raw, strict=True):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise _as_tree(operation, result)
        results: list[Any] = []
        for operation, result in zip(operations, raw, strict=True):
            if isinstance(operation, Set):
                results.append(self._node(operation.data, result))
            else:
                results.append(result if isinstance(operation, Create) else None)
        return results

    def _node(self, data: bytes | None, stat: Any) -> Node:
        owner = stat.ephemeralOwner
        return Node(data or b"", stat.version, stat.czxid, stat.mzxid, owner != 0, owner != 0 and owner == self.id)

    def _hide(self, path: str) -> None:
        if path not in self.hidden:
            self.hidden.add(path)
            log.warning("%s in ZooKeeper may not be read with our login, and is left alone", self._chroot + path)

    def _request(self, operation: Operation) -> Any:
        path = operation.path
        # A sequence alone may be the whole name.
        _, name = split_path(path + "0" if isinstance(operation, Create) and operation.sequence else path)
        if _ILLEGAL.search(path):
            raise ValueError(f"{path!r} is not a path that ZooKeeper takes")
        where = self._chroot + path
        if isinstance(operation, Create):
            if not name:
                raise NodeExists(path)
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENCE * operation.sequence
            # Kafka's empty nodes have null for data; it takes an empty text for broken JSON.
            return wire.Create(where, operation.data or None, self._acl(path), flags)
        if isinstance(operation, Set):
            return wire.SetData(where or "/", operation.data, operation.version)
        if isinstance(operation, Delete):
            if not name:
                raise NotEmpty(path)
            return wire.Delete(where, operation.version)
        return wire.CheckVersion(where or "/", operation.version)

    def _acl(self, path: str) -> list[Any]:
        if not self._settings.set_acl or path == _OPEN_TO_ALL:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(_SENSITIVE):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _watched(self, event: Any) -> None:
        if event.path is not None:  # else the connection is lost, which on_state has said
            self._on_event(event.type, event.path)

    def _make_chroot(self) -> None:
        """As Kafka does, through a session of its own that is not below the chroot."""
        if not self._chroot:
            return
        client = connected(self._settings, self._settings.servers, _ignore)
        try:
            parts = self._chroot.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                path = "/" + "/".join(parts[:depth])
                if client.exists(path) is None:
                    if not self._settings.make_chroot:
                        raise NoChroot(f"there is no {self._chroot} in ZooKeeper at {self._settings.servers}")
                    try:
                        client.create(path, None, acl=self._acl(path))  # null, as Kafka's are
                    except NodeExistsError:
                        pass  # another broker was faster
        except KazooException as error:
            raise KeeperError(
                f"the chroot {self._chroot} cannot be made in ZooKeeper at {self._settings.servers}: {named(error)}"
            ) from None
        finally:
            close(client)


def _as_tree(operation: Operation, error: Exception) -> TreeError:
    path = operation.path
    if isinstance(error, NoNodeError):
        return NoNode(split_path(path + "0")[0] if isinstance(operation, Create) else path)
    if isinstance(error, NodeExistsError):
        return NodeExists(path)
    if isinstance(error, BadVersionError) and isinstance(operation, Set | Delete | Check):
        return BadVersion(path, operation.version)
    if isinstance(error, NotEmptyError):
        return NotEmpty(path)
    if isinstance(error, NoChildrenError):
        return NoChildrenForEphemerals(split_path(path + "0")[0])
    return TreeUnavailable(path, f"ZooKeeper refuses a change of {path}: {named(error)}")


def _ignore(state: str) -> None:
    """Of a session that lives only for a moment."""
