"""The tree in ZooKeeper, for a broker whose metadata others read and change too.

Reads come from memory, as from the embedded tree: one thread keeps a mirror of the nodes that matter. What it knows
it has read from ZooKeeper, leaving a watch behind; what a watch or a change of its own has touched it reads again. So
there is one way in, and a change is called back as done when a read has shown it.

When the connection is lost, reads go on with what was known, and changes wait as long as a session lasts, then fail.
Once it is back, all is read anew, because watches are gone with a connection; then each change that was under way
is looked for, by its data and by the numbers that a change leaves on all its nodes alike, and made again only if it
is not there. When the session has expired meanwhile, `on_new_session` says so, for whoever has ephemeral nodes.

Source: Kafka's ZooKeeperClient and KafkaZkClient (retryRequestUntilConnected).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkapy.metadata.happened import happened
from kafkapy.metadata.keeper import CONNECTED, LOST, Session, Unanswered
from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings
from kafkapy.metadata.mirror import Mirror
from kafkapy.metadata.refresh import Read, Refresh, ahead, both
from kafkapy.metadata.tree import (
    Check,
    Create,
    Done,
    Event,
    Node,
    Operation,
    Tree,
    TreeError,
    TreeUnavailable,
    split_path,
)
from kafkapy.metadata.watches import Watches, call

__all__ = ["KeeperError", "KeeperSettings", "ZooKeeperTree"]

log = logging.getLogger("kafkapy.metadata.zookeeper")

# ZooKeeper ends the connection over a request that is too long for it: such a one must not be sent for ever.
_MAX_TRIES = 10
# A pause before reads are tried again that failed for another reason than the connection, and between looks at a
# connection that is lost.
_RETRY_S = 0.5


class _Change(NamedTuple):
    """`tries`: how often it was sent and not answered."""

    operations: Sequence[Operation]
    done: Done
    tries: int = 0


class ZooKeeperTree(Tree):
    """The nodes below the chroot, of the top level names in `roots` (None: of all). Raises KeeperError."""

    def __init__(self, settings: KeeperSettings, roots: Collection[str] | None = None) -> None:
        self._settings = settings
        self._patience_s = settings.session_timeout_ms / 1000
        self._mirror = Mirror()
        self._watches = Watches()
        self._session_callbacks: list[Callable[[], None]] = []
        # All of these are guarded by the condition.
        self._news = threading.Condition()
        self._waiting: deque[_Change] = deque()
        self._stale: set[Read] = set(both("/"))
        self._connected = False
        self._lost_at = 0.0
        self._expired = False
        self._closed = False
        # The thread's own: changes that ZooKeeper has answered, but that no read has shown yet; and those of which
        # nobody knows whether they were made, with the last change that was known before.
        self._answered: list[tuple[_Change, list[Any] | None, TreeError | None]] = []
        self._unsure: list[tuple[_Change, int]] = []
        self._session = Session(settings, self._on_state, self._on_event)
        self._refresh = Refresh(self._session, self._mirror, roots, settings.max_in_flight, self._patience_s)
        self._loaded = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper", daemon=True)
        self._thread.start()
        if not self._loaded.wait(self._patience_s + settings.connection_timeout_ms / 1000):
            self.close()
            raise KeeperError(f"what is in ZooKeeper at {settings.connect} cannot be read: the connection is lost")

    # Reads: from any thread, without a lock. Each one is atomic; two reads may see two different moments.

    def find(self, path: str) -> Node | None:
        return self._mirror.nodes.get(path)

    def children(self, path: str) -> list[str]:
        return self._mirror.children(path)

    # Changes.

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        with self._news:
            if not self._closed:
                self._waiting.append(_Change(operations, done))
                self._news.notify()
                return
        done(None, TreeUnavailable("/", "the metadata is closed"))

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
            if self._connected:  # watches do not outlive a connection
                self._stale.update(read for path in list(self._mirror.nodes) for read in both(path))
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
                busy = bool(self._waiting or self._unsure or self._answered)
                if self._closed and (not busy or not self._connected):
                    return False
                if self._connected and (busy or self._stale):
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
        """Changes that wait for a connection fail. Whether one that was under way happened, a later read shows."""
        self._answer()
        with self._news:
            failed = [change for change, _ in self._unsure] + list(self._waiting)
            self._unsure = []
            self._waiting.clear()
        for change in failed:
            call(change.done, None, TreeUnavailable("/", reason))

    def _turn(self) -> None:
        """Reads what is stale; answers the changes that this shows; finds out about those in doubt; makes new ones."""
        with self._news:
            stale, self._stale = self._stale, set()
            expired, self._expired = self._expired, False
        try:
            self._watches.fire(self._refresh.run(stale))
        except BaseException:
            with self._news:
                self._stale |= stale
                self._expired |= expired
            raise
        self._loaded.set()
        self._answer()
        if expired:
            for callback in self._session_callbacks:
                call(callback)
        again = [change for change, since in self._unsure if not self._answered_by_nodes(change, since)]
        self._unsure = []
        with self._news:
            self._waiting.extendleft(reversed(again))
            group = list(self._waiting)
            self._waiting.clear()
        self._change(group)

    def _change(self, group: list[_Change]) -> None:
        """Sends the changes one behind the other; what they touched is stale, and read before they are answered."""
        for change, asked in ahead(group, self._send, self._settings.max_in_flight):
            touched: Iterable[Read] = ()
            try:
                if isinstance(asked, TreeError):
                    raise asked
                since, waited_for = asked
                results = self._session.outcome(change.operations, waited_for, self._patience_s)
            except TreeError as error:
                self._answered.append((change, None, error))
                if not isinstance(error, TreeUnavailable):  # whoever tries again has to see what stood in the way
                    touched = (read for operation in change.operations for read in both(_home(operation)))
            except Unanswered:
                if change.tries < _MAX_TRIES:
                    self._unsure.append((change._replace(tries=change.tries + 1), since))
                else:
                    problem = TreeUnavailable("/", "ZooKeeper ends the connection over a change: is it over 1 MiB?")
                    self._answered.append((change, None, problem))
            else:
                self._answered.append((change, results, None))
                touched = _touched(change.operations, results)
            with self._news:
                self._stale.update(touched)

    def _send(self, change: _Change) -> Any:
        """The last number known before, and what to wait for; or the error of a change that nobody need be asked."""
        since = self._session.last_change
        try:
            return since, self._session.change(change.operations)
        except TreeError as error:
            return error
        except Exception as error:  # a caller's mistake must not end the thread
            return TreeUnavailable("/", f"not a change: {error}")

    def _answer(self) -> None:
        answered, self._answered = self._answered, []
        for change, results, error in answered:
            if results is not None:
                pairs = zip(change.operations, results, strict=True)
                results = [self.find(op.path) if isinstance(op, Check) else result for op, result in pairs]
            call(change.done, results, error)

    def _answered_by_nodes(self, change: _Change, since: int) -> bool:
        results = happened(change.operations, since, self.find, self.children)
        if results is not None:
            call(change.done, results, None)
        return results is not None


def _home(operation: Operation) -> str:
    """The node that an operation is about: of a sequence the parent, for it has no name yet."""
    is_sequence = isinstance(operation, Create) and operation.sequence
    return split_path(operation.path + "0")[0] if is_sequence else operation.path


def _touched(operations: Sequence[Operation], results: Sequence[Any]) -> Iterator[Read]:
    for operation, result in zip(operations, results, strict=True):
        if isinstance(operation, Create):
            yield from both(result)
        elif not isinstance(operation, Check):
            yield (operation.path, False)
