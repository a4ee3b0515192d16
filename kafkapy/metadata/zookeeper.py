"""The tree in ZooKeeper, for a broker whose metadata others read and change too.

Reads come from memory, as from the embedded tree: one thread keeps a mirror of the nodes that matter. What it knows
it has read from ZooKeeper, leaving a watch behind; what a watch or a change of its own has touched it reads again. So
there is one way in, and a change is called back as done when a read has shown it.

When the connection is lost, reads go on with what was known, and changes wait as long as a session lasts, then fail.
Once it is back, all is read anew, because watches are gone with a connection; then each change that was under way
is looked for, and made again only if it is not there (`keeper_changes`). When the session has expired meanwhile,
`on_new_session` says so, for whoever has ephemeral nodes.

Source: Kafka's ZooKeeperClient and KafkaZkClient (retryRequestUntilConnected).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from kafkapy.metadata.batches import batches
from kafkapy.metadata.keeper import CONNECTED, LOST, Session, Unanswered
from kafkapy.metadata.keeper_changes import Change, Changes
from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings, named
from kafkapy.metadata.mirror import Mirror
from kafkapy.metadata.refresh import Read, Refresh, ahead, both
from kafkapy.metadata.tree import (
    Done,
    Event,
    Node,
    Operation,
    Tree,
    TreeError,
    TreeUnavailable,
)
from kafkapy.metadata.watches import Watches, call

__all__ = ["KeeperError", "KeeperSettings", "ZooKeeperTree"]

log = logging.getLogger("kafkapy.metadata.zookeeper")

# A pause before reads are tried again that failed for another reason than the connection, and between looks at a
# connection that is lost.
_RETRY_S = 0.5


class _Look(NamedTuple):
    wanted: Sequence[str]
    done: Callable[[list[Node | None] | None, TreeError | None], None]


class ZooKeeperTree(Tree):
    """The nodes below the chroot, of the top level names in `roots` (None: of all), without what lies below the paths
    in `leaves`. Raises KeeperError."""

    def __init__(
        self, settings: KeeperSettings, roots: Collection[str] | None = None, leaves: Collection[str] = ()
    ) -> None:
        self._settings = settings
        self._patience_s = settings.session_timeout_ms / 1000
        self._mirror = Mirror()
        self._watches = Watches()
        self._session_callbacks: list[Callable[[], None]] = []
        # All of these are guarded by the condition.
        self._news = threading.Condition()
        self._waiting: deque[Change] = deque()
        self._looks: deque[_Look] = deque()
        self._stale: set[Read] = set(both("/"))
        self._connected = False
        self._lost_at = 0.0
        self._expired = False
        self._closed = False
        self._anew = False
        self._session = Session(settings, self._on_state, self._on_event)
        # The thread's own.
        window = settings.max_in_flight
        self._refresh = Refresh(self._session, self._mirror, roots, leaves, window, self._patience_s)
        self._changes = Changes(self._session, self._mirror, window, self._patience_s)
        self._loaded = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper", daemon=True)
        self._thread.start()
        self._wait_until_loaded()

    def _wait_until_loaded(self) -> None:
        """As long as ZooKeeper is there: many topics take their time."""
        gone_since = time.monotonic()
        while not self._loaded.wait(_RETRY_S):
            now = time.monotonic()
            if self._connected:
                gone_since = now
            elif now - gone_since > self._patience_s:
                self.close()
                where = self._settings.connect
                raise KeeperError(f"what is in ZooKeeper at {where} cannot be read: the connection is lost")

    # Reads: from any thread, without a lock. Each one is atomic; two reads may see two different moments.

    def find(self, path: str) -> Node | None:
        return self._mirror.nodes.get(path)

    def children(self, path: str) -> list[str]:
        return self._mirror.children(path)

    # Changes.

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        with self._news:
            if not self._closed:
                self._waiting.append(Change(operations, done))
                self._news.notify()
                return
        done(None, TreeUnavailable("/", "the metadata is closed"))

    def look(self, wanted: Sequence[str], done: Callable[[list[Node | None] | None, TreeError | None], None]) -> None:
        with self._news:
            if not self._closed:
                self._looks.append(_Look(wanted, done))
                self._news.notify()
                return
        done(None, TreeUnavailable("/", "the metadata is closed"))

    def in_changes(self, operations: Sequence[Operation]) -> list[list[Operation]]:
        return list(batches(operations))

    @property
    def answers(self) -> bool:
        return self._connected

    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    def on_new_session(self, callback: Callable[[], None]) -> None:
        self._session_callbacks.append(callback)

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        if not self.on_tree_thread():
            self._thread.join()

    def on_tree_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def session_id(self) -> int | None:
        """The session's number; None while there is no connection."""
        return self._session.id

    @property
    def hidden(self) -> list[str]:
        """The paths of nodes that may not be read with our login, and count as not there."""
        return sorted(self._session.hidden)

    # What kazoo's threads call.

    def _on_state(self, state: str) -> None:
        with self._news:
            before, self._connected = self._connected, state == CONNECTED
            if before and not self._connected:
                self._lost_at = time.monotonic()
            if state == LOST and not self._closed:
                self._expired = True
            # What is known then is for the tree's own thread to say: it may be about to know more, of the connection
            # that was lost.
            self._anew |= self._connected
            self._news.notify()
        if self._closed:
            return
        where = self._settings.connect
        if state == LOST:
            log.warning("the session with ZooKeeper at %s has expired: what it kept for this process is gone", where)
        elif before and not self._connected:
            log.warning(
                "the connection to ZooKeeper at %s is lost: partitions are served as before, changes of topics wait",
                where,
            )
        elif self._connected and self._lost_at:
            log.info("connected to ZooKeeper at %s again", where)

    def _on_event(self, kind: str, path: str) -> None:
        with self._news:
            if kind == "CHANGED":
                self._stale.add((path, False))
            elif kind == "CHILD":
                self._stale.add((path, True))
            else:
                self._stale.update(both(path))
            self._news.notify()

    # The tree's own thread.

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self._turn()
            except Unanswered:
                pass  # on_state says what is lost, and everything is read again
            except Exception:  # the thread must not end: nothing could be changed any more
                log.exception("ZooKeeper at %s cannot be read", self._settings.connect)
                time.sleep(_RETRY_S)
        self._session.close()
        self._give_up("the metadata is closed")

    def _wait_for_work(self) -> bool:
        """Until there is something to do and ZooKeeper to do it with; False when the tree is closed and all is done."""
        while True:
            with self._news:
                busy = bool(self._waiting or self._looks or self._changes)
                if self._closed and (not busy or not self._connected):
                    return False
                if self._connected and (busy or self._stale or self._anew):
                    return True
                if self._connected:
                    self._news.wait()
                    continue
                self._news.wait(_RETRY_S)
                if self._connected or self._closed:
                    continue
                gone_for = time.monotonic() - self._lost_at
            self._session.revive()
            if busy and gone_for > self._patience_s:
                self._give_up(
                    f"ZooKeeper at {self._settings.connect} has not answered for {self._patience_s:g} s; try again "
                    "when it does"
                )

    def _give_up(self, reason: str) -> None:
        """Who waits for a connection is told that there is none. Whether a change was made, a later read shows."""
        self._changes.answer()
        with self._news:
            failed = [change.done for change in (*self._changes.given_up(), *self._waiting)]
            failed += [look.done for look in self._looks]
            self._waiting.clear()
            self._looks.clear()
        for done in failed:
            call(done, None, TreeUnavailable("/", reason))

    def _turn(self) -> None:
        """Reads what is stale; answers the changes that this shows; finds out about those in doubt; makes new ones."""
        with self._news:
            stale, self._stale = self._stale, set()
            expired, self._expired = self._expired, False
            anew, self._anew = self._anew, False
        if anew:  # watches do not outlive a connection
            stale.update(read for path in self._mirror.nodes for read in both(path))
        try:
            self._watches.fire(self._refresh.run(stale))
        except BaseException:
            with self._news:
                self._stale |= stale
                self._expired |= expired
                self._anew |= anew
            raise
        self._loaded.set()
        self._changes.answer()
        if expired:
            for callback in self._session_callbacks:
                call(callback)
        again = self._changes.not_made()
        with self._news:
            group = [*again, *self._waiting]
            self._waiting.clear()
        touched = self._changes.make(group)
        with self._news:
            self._stale |= touched
        self._look()

    def _look(self) -> None:
        """What was asked for and is not followed. Without an answer it is asked for again."""
        with self._news:
            looks = list(self._looks)
        for look in looks:
            found: list[Node | None] | None = []
            problem: TreeError | None = None
            try:
                asked = ahead(look.wanted, partial(self._session.read, watched=False), self._settings.max_in_flight)
                found = [self._session.node(path, one, self._patience_s) for path, one in asked]
            except Unanswered:
                raise
            except Exception as error:
                found, problem = None, TreeUnavailable("/", f"ZooKeeper cannot be asked: {named(error)}")
            with self._news:
                self._looks.popleft()
            call(look.done, found, problem)
