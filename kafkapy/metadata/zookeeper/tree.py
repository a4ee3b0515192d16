"""The metadata tree in ZooKeeper, for a broker whose metadata other brokers and tools also read and change.

Reads come from a cache. One thread fills the cache by reading from ZooKeeper, with a watch on every node. When a watch
fires or this process changes nodes, the thread reads those nodes again, and the callback of a change is called when a
read has shown the change. Two kinds of nodes are exceptions (see `followed_nodes`): those that only a controller needs
are in the cache between `load_below` and `unload_below`, and the states of partitions, which only the controller
writes, have no watches: they are read in bulk, and changed in the cache when ZooKeeper has accepted a change.

While the connection is lost, reads return the cached nodes, and changes wait for up to a session time-out, then fail.
After a reconnect, all nodes are read again, because watches end with a connection. Then each change without an answer
is looked up in the cache, and is sent again only if it was not made (see `unanswered_changes`). If the session has
expired meanwhile, the callbacks of `on_new_session` are called, because the ephemeral nodes are gone.

Source: Kafka's ZooKeeperClient and KafkaZkClient (retryRequestUntilConnected).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import AuthFailedError

from kafkapy.metadata.tree import (
    Done,
    Event,
    Node,
    Operation,
    Tree,
    TreeError,
    TreeUnavailable,
    TreeUnreachable,
)
from kafkapy.metadata.watches import Watches, call
from kafkapy.metadata.zookeeper.batches import batches
from kafkapy.metadata.zookeeper.cache_refresh import Refresh
from kafkapy.metadata.zookeeper.changes import Change, Changes
from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings, named, refused_login
from kafkapy.metadata.zookeeper.followed_nodes import FollowedNodes, Read, both
from kafkapy.metadata.zookeeper.node_cache import NodeCache
from kafkapy.metadata.zookeeper.session import CONNECTED, LOST, Session, Unanswered
from kafkapy.runtime.threads import NoThread, Thread

__all__ = ["ZooKeeperError", "ZooKeeperSettings", "ZooKeeperTree"]

log = logging.getLogger("kafkapy.metadata.zookeeper")

# The pause after reads that failed for another reason than the connection, and between checks of a lost connection.
_RETRY_S = 0.5


# How long `close` waits for a lost connection to come back, in order to end the session in ZooKeeper too. The time for
# which the connection has already been lost counts, so `close` may not wait at all.
_END_S = 5.0


class _UncachedRead(NamedTuple):
    """A call of `read_through` or `read_children_through` that waits until the tree's own thread makes the reads
    `wanted` and calls `done` with their results."""

    wanted: Sequence[Read]
    done: Callable[[list[Any] | None, TreeError | None], None]


class _Load(NamedTuple):
    """A call of `load_below` (or of `unload_below`, if `is_wanted` is False) that waits for the tree's own thread."""

    paths: Sequence[str]
    is_wanted: bool
    done: Callable[[TreeError | None], object]


class ZooKeeperTree(Tree):
    """A metadata tree in ZooKeeper, below the chroot. It has the nodes whose top-level name is in `roots` (None: all
    nodes), without the nodes below the paths in `leaves`. If `topics` is a path, the nodes below each of its children
    are not watched (see FollowedNodes).

    The constructor blocks until all nodes are read. It raises ZooKeeperError if ZooKeeper cannot be reached, NoThread
    if no thread can be started.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        roots: Collection[str] | None = None,
        leaves: Collection[str] = (),
        topics: str | None = None,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.session_timeout_ms / 1000
        self._cache = NodeCache()
        self._watches = Watches()
        self._session_callbacks: list[Callable[[], None]] = []
        # Guarded by the condition:
        self._condition = threading.Condition()
        self._waiting: deque[Change] = deque()
        self._uncached_reads: deque[_UncachedRead] = deque()
        self._loads: deque[_Load] = deque()
        self._stale: set[Read] = set(both("/"))
        self._connected = False
        self._lost_at = 0.0  # when the connection was lost, 0.0 if all nodes were read after that
        self._logged: set[str] = set()  # what was logged about this loss
        self._expired = False
        self._closed = False
        self._reload = False
        self._session = Session(settings, self._on_state, self._on_event)
        # Used by the tree's thread only:
        window = settings.max_in_flight
        self._followed = FollowedNodes(roots, leaves, topics)
        self._refresh = Refresh(self._session, self._cache, self._followed, window, self._timeout_s)
        self._changes = Changes(self._session, self._cache, self._followed, window, self._timeout_s)
        self._complete: set[str] = set()  # the paths below which `load_below` has read all nodes
        self._loaded = threading.Event()
        self._thread = Thread(self._run, "zookeeper")
        try:
            self._thread.start()
        except NoThread:
            self._session.close(_END_S)
            raise
        self._wait_until_loaded()

    def _wait_until_loaded(self) -> None:
        """Wait until all nodes have been read for the first time, which may take long with many topics. Raise
        ZooKeeperError only if the connection stays lost for a session time-out."""
        lost_since = time.monotonic()
        while not self._loaded.wait(_RETRY_S):
            now = time.monotonic()
            if self._connected:
                lost_since = now
            elif now - lost_since > self._timeout_s:
                self.close()
                where = self._settings.connect
                raise ZooKeeperError(f"the metadata in ZooKeeper at {where} cannot be read: the connection is lost")

    # Reads: from any thread, without a lock. Each is atomic; a change may happen between two reads.

    def find(self, path: str) -> Node | None:
        return self._cache.nodes.get(path)

    def children(self, path: str) -> list[str]:
        return self._cache.children(path)

    # Changes.

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        with self._condition:
            if not self._closed:
                self._waiting.append(Change(operations, done))
                self._condition.notify()
                return
        done(None, TreeUnreachable("/", "the metadata is closed"))

    def refresh(self, paths: Sequence[str], done: Callable[[TreeError | None], object]) -> None:
        def found(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            if nodes is not None:
                self._watches.fire(self._cache.apply(dict(zip(paths, nodes, strict=True))))
            done(error)

        self.read_through(paths, found)

    def read_through(
        self, wanted: Sequence[str], done: Callable[[list[Node | None] | None, TreeError | None], None]
    ) -> None:
        self._read_later(_UncachedRead([(path, False) for path in wanted], done))

    def read_children_through(self, path: str, done: Callable[[list[str] | None, TreeError | None], None]) -> None:
        def found(results: list[Any] | None, error: TreeError | None) -> None:
            done(None if results is None else sorted(results[0] or ()), error)

        self._read_later(_UncachedRead([(path, True)], found))

    def _read_later(self, read: _UncachedRead) -> None:
        with self._condition:
            if not self._closed:
                self._uncached_reads.append(read)
                self._condition.notify()
                return
        read.done(None, TreeUnreachable("/", "the metadata is closed"))

    def load_below(self, paths: Sequence[str], done: Callable[[TreeError | None], object]) -> None:
        if not self._load_later(_Load(paths, True, done)):
            done(TreeUnreachable("/", "the metadata is closed"))

    def unload_below(self, paths: Sequence[str]) -> None:
        self._load_later(_Load(paths, False, lambda error: None))

    def _load_later(self, load: _Load) -> bool:
        with self._condition:
            if not self._closed:
                self._loads.append(load)
                self._condition.notify()
            return not self._closed

    def split_into_changes(self, operations: Sequence[Operation]) -> list[list[Operation]]:
        return list(batches(operations))

    @property
    def is_reachable(self) -> bool:
        return self._connected

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    def watch_all(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        return self._watches.add_for_all(callback)

    def on_new_session(self, callback: Callable[[], None]) -> None:
        self._session_callbacks.append(callback)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()
        if not self.on_tree_thread():
            self._thread.join()

    def on_tree_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def session_id(self) -> int | None:
        """The id of the ZooKeeper session, or None while disconnected."""
        return self._session.id

    @property
    def hidden(self) -> list[str]:
        """The sorted paths of the nodes that the login may not read. The tree treats these nodes as not existing."""
        return sorted(self._session.hidden)

    # Called by kazoo's threads.

    def _on_state(self, state: str) -> None:
        # With a login, CONNECTED comes before ZooKeeper has checked it, again and again while ZooKeeper refuses it. So
        # only a read that has succeeded shows that a loss is over.
        with self._condition:
            before, self._connected = self._connected, state == CONNECTED
            if before and not self._connected and not self._lost_at:
                self._lost_at = time.monotonic()
            if state == LOST and not self._closed:
                self._expired = True
            # Only the tree's own thread may discard the nodes that were read over the old connection: that thread may
            # be about to store more such nodes.
            self._reload |= self._connected
            self._condition.notify()
        if self._closed:
            return
        where = self._settings.connect
        if state == LOST:
            self._log_once(
                f"the session with ZooKeeper at {where} has expired: its ephemeral nodes, such as the registration, "
                "are gone"
            )
        elif before and not self._connected:
            self._log_once(
                f"the connection to ZooKeeper at {where} is lost: partitions are still served, changes of topics wait"
            )

    def _log_refusal(self) -> None:
        self._log_once(f"{refused_login(self._settings.servers)}; it is tried again")

    def _log_once(self, text: str) -> None:
        """Log a warning about the loss of the connection, unless it was logged since all nodes were read."""
        with self._condition:
            is_logged = text in self._logged
            self._logged.add(text)
        if not is_logged:
            log.warning("%s", text)

    def _on_event(self, kind: str, path: str) -> None:
        with self._condition:
            if kind == "CHANGED":
                self._stale.add((path, False))
            elif kind == "CHILD":
                self._stale.add((path, True))
            else:
                self._stale.update(both(path))
            self._condition.notify()

    # The tree's own thread.

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self._do_work()
            except Unanswered:
                pass  # on_state handles the loss; after the reconnect everything is read again
            except AuthFailedError:
                self._log_refusal()
                time.sleep(_RETRY_S)
            except Exception:  # without this thread no change could be made any more
                log.exception("reading from ZooKeeper at %s failed", self._settings.connect)
                time.sleep(_RETRY_S)
        self._fail_all("the metadata is closed")
        self._end_session()

    def _end_session(self) -> None:
        with self._condition:
            lost_for = 0.0 if self._connected else time.monotonic() - self._lost_at
        if not self._session.close(_END_S - lost_for) and any(node.mine for node in self._cache.nodes.values()):
            log.warning(
                "the session with ZooKeeper at %s could not be closed: its ephemeral nodes, such as the broker's "
                "registration, stay until it expires (zookeeper.session.timeout.ms: %g s)",
                self._settings.connect,
                self._timeout_s,
            )

    def _wait_for_work(self) -> bool:
        """Wait until there is work to do and a connection, then return True. Return False once the tree is closed and
        the work is done or cannot be done."""
        while True:
            with self._condition:
                busy = bool(self._waiting or self._uncached_reads or self._loads or self._changes)
                if self._closed and (not busy or not self._connected):
                    return False
                if self._connected and (busy or self._stale or self._reload):
                    return True
                if self._connected:
                    self._condition.wait()
                    continue
                self._condition.wait(_RETRY_S)
                if self._connected or self._closed:
                    continue
                lost_for = time.monotonic() - self._lost_at
            if self._session.revive() and self._settings.login is not None:
                self._log_refusal()
            if busy and lost_for > self._timeout_s:
                self._fail_all(
                    f"ZooKeeper at {self._settings.connect} has not answered for {self._timeout_s:g} s; try again later"
                )

    def _fail_all(self, reason: str) -> None:
        """Call the callbacks of all waiting changes and reads with the error TreeUnreachable. A later read will show
        whether a change that was sent without getting an answer was made."""
        self._changes.call_back()
        with self._condition:
            failed = [change.done for change in (*self._changes.give_up(), *self._waiting)]
            failed += [read.done for read in self._uncached_reads]
            loads = [load for load in self._loads if load.is_wanted]
            self._waiting.clear()
            self._uncached_reads.clear()
            self._loads = deque(load for load in self._loads if not load.is_wanted)
        for done in failed:
            call(done, None, TreeUnreachable("/", reason))
        for load in loads:
            self._forget_below(set(load.paths) - self._complete)
            call(load.done, TreeUnreachable("/", reason))

    def _do_work(self) -> None:
        """Read stale nodes into the cache, call the callbacks of the changes that the cache now shows, find out which
        unanswered changes were made, and send new changes."""
        with self._condition:
            stale, self._stale = self._stale, set()
            expired, self._expired = self._expired, False
            reload, self._reload = self._reload, False
        # Watches end with the connection; and only what is read now shows whether a change was made.
        if reload or self._changes.is_unsure:
            stale.update(read for path in self._cache.nodes for read in self._followed.reads_again(path))
            stale |= self._changes.reads_of_unsure()
        try:
            self._watches.fire(self._refresh.run(stale))
        except BaseException:
            with self._condition:
                self._stale |= stale
                self._expired |= expired
                self._reload |= reload
            raise
        if reload:
            self._note_reload()
        self._loaded.set()
        self._changes.call_back()
        if expired:
            for callback in self._session_callbacks:
                call(callback)
        unmade = self._changes.to_resend()
        with self._condition:
            self._waiting.extendleft(reversed(unmade))  # before the loads, which may lose the connection again
        self._load_and_unload()
        with self._condition:
            group = list(self._waiting)
            self._waiting.clear()
        touched, known, unsent = self._changes.send_all(group)
        with self._condition:
            self._stale |= touched
            self._waiting.extendleft(reversed(unsent))
        self._watches.fire(self._cache.apply(known))
        self._read_uncached()

    def _note_reload(self) -> None:
        """Note that all nodes were read after a reconnect, or at the start."""
        with self._condition:
            is_back = self._connected and bool(self._lost_at)
            if is_back:
                self._lost_at = 0.0
                self._logged.clear()
        if is_back:
            log.info("reconnected to ZooKeeper at %s", self._settings.connect)

    def _load_and_unload(self) -> None:
        """Carry out the waiting calls of `load_below` and `unload_below`. If the connection is lost, they stay
        queued."""
        with self._condition:
            loads = list(self._loads)
        for load in loads:
            problem: TreeError | None = None
            if load.is_wanted:
                self._followed.include_below(load.paths)
                try:
                    self._refresh.run((path, True) for path in load.paths)
                except Unanswered:
                    raise
                except Exception as error:
                    problem = TreeUnavailable("/", f"reading from ZooKeeper failed: {named(error)}")
                    self._forget_below(set(load.paths) - self._complete)
                else:
                    self._complete.update(load.paths)
            else:
                self._complete.difference_update(load.paths)
                self._forget_below(load.paths)
            with self._condition:
                self._loads.popleft()
            call(load.done, problem)

    def _forget_below(self, paths: Collection[str]) -> None:
        self._followed.exclude_below(paths)
        for path in paths:
            self._cache.discard_below(path)

    def _read_uncached(self) -> None:
        """Carry out the waiting calls of `read_through`. If the connection is lost, the calls stay queued."""
        with self._condition:
            reads = list(self._uncached_reads)
        for read in reads:
            found: list[Any] | None = []
            problem: TreeError | None = None
            try:
                results = self._session.read_many(read.wanted, self._settings.max_in_flight, self._timeout_s)
                found = [result for _, result in results]
            except Unanswered:
                raise
            except Exception as error:
                found, problem = None, TreeUnavailable("/", f"reading from ZooKeeper failed: {named(error)}")
            with self._condition:
                self._uncached_reads.popleft()
            call(read.done, found, problem)
