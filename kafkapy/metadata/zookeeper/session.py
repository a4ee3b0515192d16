"""A session with ZooKeeper through kazoo, with pipelined reads, and changes sent as multi-operation transactions.

Only the thread of the metadata tree uses a session. kazoo's threads call `on_state` and `on_event`, which must not
block. This module imports kazoo, so import it only if ZooKeeper is used. Source: Kafka's ZooKeeperClient,
KafkaZkClient.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    UnimplementedError,
)
from kazoo.exceptions import NoChildrenForEphemeralsError as NoChildrenError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kafkapy.metadata.paths import SCRAM_CHALLENGE_KEY
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
from kafkapy.metadata.zookeeper.bulk_read import MultiRead
from kafkapy.metadata.zookeeper.client import (
    NoChroot,
    ZooKeeperError,
    ZooKeeperSettings,
    close,
    connected,
    named,
    revive,
)
from kafkapy.metadata.zookeeper.followed_nodes import Read
from kafkapy.metadata.zookeeper.pipelining import pipelined

log = logging.getLogger("kafkapy.metadata.zookeeper")

CONNECTED = KazooState.CONNECTED
SUSPENDED = KazooState.SUSPENDED
LOST = KazooState.LOST

# Exceptions after which it is unknown whether a change was made.
Unanswered = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError, KazooTimeoutError)

# The characters and path elements that ZooKeeper's PathUtils rejects.
_ILLEGAL = re.compile(r"/\.\.?(/|$)|[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_EPHEMERAL, _SEQUENCE = 1, 2
_IN_BULK = 200  # nodes that are read with one request
_PAUSE_S = 0.05  # pause before an unanswered request is retried
# ZooKeeper's own nodes, which the tree leaves out.
_OWN_NODE = "zookeeper"
_OPEN_PATH = "/consumers"
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens", SCRAM_CHALLENGE_KEY)


class Session:
    """A connection to ZooKeeper, from construction until `close`. kazoo reconnects when the connection is lost, with a
    new session if the old one has expired.

    The constructor raises ZooKeeperError if no connection can be made.
    """

    def __init__(
        self, settings: ZooKeeperSettings, on_state: Callable[[str], None], on_event: Callable[[str, str], None]
    ) -> None:
        """Connect to ZooKeeper. `on_state` is called when the state of the connection changes. `on_event(kind, path)`
        is called when a watch fires: kind is CREATED, CHANGED, DELETED or CHILD."""
        self._settings = settings
        self._chroot = settings.chroot
        self._make_chroot()
        self._client = connected(settings, settings.servers + self._chroot, on_state)
        self._on_event = on_event
        self._reads_in_bulk = True  # False once ZooKeeper has shown that it is older than 3.6
        self.hidden: set[str] = set()  # paths that the broker's login may not read

    @property
    def id(self) -> int | None:
        """The id of the ZooKeeper session, which is also the owner in its ephemeral nodes, or None while
        disconnected."""
        client_id = self._client.client_id
        return client_id[0] if client_id is not None else None

    @property
    def last_change(self) -> int:
        """The greatest zxid (number of a change) that was seen in ZooKeeper's answers."""
        return int(self._client.last_zxid)

    def close(self, timeout_s: float) -> bool:
        """End the session, so that ZooKeeper deletes the session's ephemeral nodes. Return False if ZooKeeper did not
        get the request; the nodes then stay until the session expires.

        First wait for up to `timeout_s` seconds until ZooKeeper answers. This is needed because kazoo sends the end of
        a session only once, and does not send it at all while the connection is broken, perhaps unnoticed.
        """
        is_reachable = self._wait_for_answer(timeout_s)
        return close(self._client) and is_reachable

    def _wait_for_answer(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._client.exists_async("/").get(timeout=left)
                return True
            except Unanswered:
                time.sleep(_PAUSE_S)
            except KazooException:  # for instance, the login is refused now
                return False
        return False

    def revive(self) -> bool:
        """Connect again if kazoo has given up after a refused login, and return True if so. See `client.revive`."""
        return revive(self._client)

    def read(self, path: str, *, watched: bool = True) -> Any:
        """Start to read the data of the node at this path, with a watch unless `watched` is False. Return kazoo's
        pending result, to be passed to `node`."""
        return self._client.get_async(path, watch=self._watched if watched else None)

    def read_children(self, path: str, *, watched: bool = True) -> Any:
        """Start to read the names of the children of the node at this path, with a watch unless `watched` is False.
        Return kazoo's pending result, to be passed to `children`."""
        return self._client.get_children_async(path, watch=self._watched if watched else None)

    def node(self, path: str, asked: Any, timeout: float) -> Node | None:
        """Wait for the result `asked` of a `read` and return the node. Return None if the node does not exist or the
        login may not read it. Raises KazooException."""
        try:
            data, stat = asked.get(timeout=timeout)
        except NoNodeError:
            return None
        except NoAuthError:
            self._hide(path)
            return None
        return self._node(data, stat)

    def children(self, path: str, asked: Any, timeout: float) -> list[str] | None:
        """Wait for the result `asked` of a `read_children` and return the names of the node's children. Return None if
        the node does not exist or the login may not read it. Raises KazooException."""
        try:
            names: list[str] = asked.get(timeout=timeout)
        except NoNodeError:
            return None
        except NoAuthError:
            self._hide(path)
            return None
        return self._names(path, names)

    def read_many(self, reads: Iterable[Read], window: int, timeout: float) -> Iterator[tuple[Read, Any]]:
        """Read many nodes without watches, and yield each read with its result, as `node` and `children` return it.

        Up to `window` requests are in flight, each for many nodes if ZooKeeper is 3.6 or later. Raises KazooException.
        """
        left = list(reads)
        if self._reads_in_bulk:
            parts = [left[at : at + _IN_BULK] for at in range(0, len(left), _IN_BULK)]
            for part, asked in pipelined(parts, self._ask_for_many, window):
                try:
                    results = asked.get(timeout=timeout)
                except UnimplementedError:  # an older ZooKeeper also closes the connection
                    log.info("ZooKeeper is older than 3.6: nodes are read one by one")
                    self._reads_in_bulk = False
                    break
                for read, result in zip(part, results, strict=True):
                    yield read, self._result_of(read, result)
                del left[: len(part)]
        for read, asked in pipelined(left, self._ask_for_one, window):
            get = self.children if read[1] else self.node
            yield read, get(read[0], asked, timeout)

    def _ask_for_many(self, reads: Sequence[Read]) -> Any:
        for path, _ in reads:
            if _ILLEGAL.search(path):
                raise ValueError(f"{path!r} is not a valid ZooKeeper path")
        result = self._client.handler.async_result()
        where = [((self._chroot + path).rstrip("/") or "/", of_children) for path, of_children in reads]
        self._client._call(MultiRead(where), result)
        return result

    def _ask_for_one(self, read: Read) -> Any:
        path, of_children = read
        ask = self.read_children if of_children else self.read
        return ask(path, watched=False)

    def _result_of(self, read: Read, result: Any) -> Any:
        path, of_children = read
        if isinstance(result, Exception):
            if isinstance(result, NoAuthError):
                self._hide(path)
            elif not isinstance(result, NoNodeError):
                raise result
            return None
        if of_children:
            return self._names(path, result)
        return self._node(*result)

    def _names(self, path: str, names: list[str]) -> list[str]:
        return [name for name in names if path != "/" or name != _OWN_NODE]

    def change(self, operations: Sequence[Operation]) -> Any:
        """Send the operations to ZooKeeper as one change. Return kazoo's pending result, to be passed to `outcome`.
        Raises TreeError or ValueError if the change is invalid, which is found without asking ZooKeeper."""
        requests = [self._request(operation) for operation in operations]
        result = self._client.handler.async_result()
        self._client._call(wire.Transaction(requests), result)
        return result

    def outcome(self, operations: Sequence[Operation], asked: Any, timeout: float) -> list[Any]:
        """Wait for the result `asked` of a `change` and return the result of each operation: the path for a Create, the
        Node for a Set, None for checks and deletions.

        Raises TreeError if ZooKeeper refused the change, and one of the exceptions in Unanswered if it is unknown
        whether the change was made.
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
            log.warning("the broker's login may not read %s in ZooKeeper; it is ignored", self._chroot + path)

    def _request(self, operation: Operation) -> Any:
        path = operation.path
        # A sequence node's name may consist of its number alone.
        _, name = split_path(path + "0" if isinstance(operation, Create) and operation.sequence else path)
        if _ILLEGAL.search(path):
            raise ValueError(f"{path!r} is not a valid ZooKeeper path")
        where = self._chroot + path
        if isinstance(operation, Create):
            if not name:
                raise NodeExists(path)
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENCE * operation.sequence
            # As in Kafka, empty nodes have null as data: Kafka fails to parse empty data as JSON.
            return wire.Create(where, operation.data or None, self._acl(path), flags)
        if isinstance(operation, Set):
            return wire.SetData(where or "/", operation.data, operation.version)
        if isinstance(operation, Delete):
            if not name:
                raise NotEmpty(path)
            return wire.Delete(where, operation.version)
        return wire.CheckVersion(where or "/", operation.version)

    def _acl(self, path: str) -> list[Any]:
        if not self._settings.set_acl or path == _OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(_SENSITIVE):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _watched(self, event: Any) -> None:
        if event.path is not None:  # a lost connection is reported by on_state
            self._on_event(event.type, event.path)

    def _make_chroot(self) -> None:
        """Create the chroot as Kafka does, through a separate session without a chroot. If the connection is lost
        meanwhile, try again until zookeeper.connection.timeout.ms is over. Raises ZooKeeperError."""
        if not self._chroot:
            return
        client = connected(self._settings, self._settings.servers, _ignore)
        deadline = time.monotonic() + self._settings.connection_timeout_ms / 1000
        try:
            while True:
                try:
                    self._make_missing_nodes(client)
                    return
                except Unanswered:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_PAUSE_S)
        except (KazooException, KazooTimeoutError) as error:
            raise ZooKeeperError(
                f"the chroot {self._chroot} cannot be created in ZooKeeper at {self._settings.servers}: {named(error)}"
            ) from None
        finally:
            close(client)

    def _make_missing_nodes(self, client: Any) -> None:
        """Create those nodes of the chroot's path that do not exist. Raises NoChroot if one is missing and the settings
        forbid creating it."""
        parts = self._chroot.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:depth])
            if client.exists(path) is None:
                if not self._settings.make_chroot:
                    raise NoChroot(f"the chroot {self._chroot} does not exist in ZooKeeper at {self._settings.servers}")
                try:
                    client.create(path, None, acl=self._acl(path))  # data null, as in Kafka
                except NodeExistsError:
                    pass  # created by another broker meanwhile, or by an attempt whose answer was lost


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
    """Ignore a change of the connection's state. `on_state` for a connection that is closed at once."""
