"""Sends changes to ZooKeeper in order, and calls each change's callback when the node cache shows the change.

If an answer is lost with the connection, it is unknown whether the change was made. The refreshed cache shows whether
it was (see unanswered_changes), and only changes that were not made are sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkapy.metadata.tree import (
    Check,
    Create,
    Delete,
    Done,
    Node,
    Operation,
    Set,
    TreeError,
    TreeUnavailable,
    split_path,
)
from kafkapy.metadata.watches import call
from kafkapy.metadata.zookeeper.client import named
from kafkapy.metadata.zookeeper.followed_nodes import FollowedNodes, Read, both
from kafkapy.metadata.zookeeper.node_cache import NodeCache
from kafkapy.metadata.zookeeper.pipelining import pipelined
from kafkapy.metadata.zookeeper.session import Session, Unanswered
from kafkapy.metadata.zookeeper.unanswered_changes import results_if_applied

# ZooKeeper closes the connection over a request that is too long, so a change must not be retried forever.
_MAX_TRIES = 10


class Change(NamedTuple):
    """A change (a list of operations) that was submitted to the metadata tree. `tries` is the number of times that the
    change was sent to ZooKeeper without getting an answer."""

    operations: Sequence[Operation]
    done: Done
    tries: int = 0


class Changes:
    """The changes that were sent to ZooKeeper and whose callbacks were not called yet. Only the thread of the metadata
    tree uses the object."""

    def __init__(
        self, session: Session, cache: NodeCache, followed: FollowedNodes, window: int, timeout_s: float
    ) -> None:
        self._session = session
        self._cache = cache
        self._followed = followed
        self._window = window
        self._timeout_s = timeout_s
        # Answered by ZooKeeper, but not yet visible in the cache.
        self._answered: list[tuple[Change, list[Any] | None, TreeError | None]] = []
        # Without an answer, with the last zxid known when it was sent.
        self._unsure: list[tuple[Change, int]] = []

    def __bool__(self) -> bool:
        """Return True if a sent change waits for its callback."""
        return bool(self._answered or self._unsure)

    @property
    def is_unsure(self) -> bool:
        """True if a change was sent without getting an answer."""
        return bool(self._unsure)

    def send_all(self, group: Iterable[Change]) -> tuple[set[Read], dict[str, Node | None], list[Change]]:
        """Send the changes to ZooKeeper and wait for the answers. If an answer does not come, send no more changes:
        changes are made in order, so the unanswered one has to be repeated first.

        Return the reads of nodes that must be made before the changes' callbacks may be called, the nodes without
        watches as the changes have left them, and the changes that were not sent. Only this process writes nodes
        without watches, so they need not be read. A new topic is in both results: among the nodes, so that the nodes
        below it have a parent in the cache, and among the reads, which set its watch.
        """
        touched: set[Read] = set()
        known: dict[str, Node | None] = {}
        unsent: list[Change] = []
        is_lost = False

        def send(change: Change) -> Any:
            return None if is_lost else self._send(change)

        for change, asked in pipelined(group, send, self._window):
            if asked is None:
                unsent.append(change)
                continue
            try:
                if isinstance(asked, TreeError):
                    raise asked
                since, waited_for = asked
                timeout_s = 0.0 if is_lost else self._timeout_s
                results = self._session.outcome(change.operations, waited_for, timeout_s)
            except TreeError as error:
                self._answered.append((change, None, error))
                if not isinstance(error, TreeUnavailable):  # a retry has to see the nodes that made this change fail
                    touched.update(_reads_of(change.operations))
            except Unanswered:
                is_lost = True
                if change.tries < _MAX_TRIES:
                    self._unsure.append((change._replace(tries=change.tries + 1), since))
                else:
                    problem = TreeUnavailable(
                        "/", "ZooKeeper closes the connection over a change; is it larger than 1 MiB (jute.maxbuffer)?"
                    )
                    self._answered.append((change, None, problem))
            except Exception as error:  # most likely a login that is refused now; every caller must be answered
                self._answered.append(
                    (change, None, TreeUnavailable("/", f"ZooKeeper refuses the change: {named(error)}"))
                )
                # It was sent, so ZooKeeper may have made it. A later change must not be visible without it.
                touched.update(_reads_of(change.operations))
            else:
                self._answered.append((change, results, None))
                for operation, result in zip(change.operations, results, strict=True):
                    if isinstance(operation, Check):
                        continue
                    path = result if isinstance(operation, Create) else operation.path
                    is_created = isinstance(operation, Create)
                    is_new_topic = is_created and self._followed.is_topic(path)
                    if self._followed.includes((path, False)) and (not self._followed.is_watched(path) or is_new_topic):
                        known[path] = _after(operation, result)
                    touched.update(self._followed.reads_again(path) if is_created else self._data(path))
        return touched, known, unsent

    def _data(self, path: str) -> tuple[Read, ...]:
        return ((path, False),) if self._followed.is_watched(path) else ()

    def reads_of_unsure(self) -> set[Read]:
        """Return the reads of the nodes without watches that show whether unanswered changes were made."""
        reads = (read for change, _ in self._unsure for read in _reads_of(change.operations))
        return {read for read in reads if not self._followed.is_watched(read[0])}

    def call_back(self) -> None:
        """Call the callbacks of all answered changes. The caller has refreshed the cache, so that it shows the
        changes."""
        answered, self._answered = self._answered, []
        for change, results, error in answered:
            if results is not None:
                pairs = zip(change.operations, results, strict=True)
                results = [self._cache.nodes.get(op.path) if isinstance(op, Check) else result for op, result in pairs]
            call(change.done, results, error)

    def to_resend(self) -> list[Change]:
        """Return the unanswered changes that were not made, and call the callbacks of those that were made. The caller
        has just read all nodes into the cache."""
        unsure, self._unsure = self._unsure, []
        return [change for change, since in unsure if not self._call_back_if_applied(change, since)]

    def give_up(self) -> list[Change]:
        """Return the changes that were sent without getting an answer, and forget them."""
        unsure, self._unsure = self._unsure, []
        return [change for change, _ in unsure]

    def _send(self, change: Change) -> Any:
        """Send a change to ZooKeeper. Return the greatest zxid known before and kazoo's pending answer, or a TreeError
        if the change cannot be sent."""
        since = self._session.last_change
        try:
            return since, self._session.change(change.operations)
        except TreeError as error:
            return error
        except Exception as error:  # an invalid change must not end the thread
            return TreeUnavailable("/", f"invalid change: {error}")

    def _call_back_if_applied(self, change: Change, since: int) -> bool:
        results = results_if_applied(change.operations, since, self._cache.nodes.get, self._cache.children)
        if results is not None:
            call(change.done, results, None)
        return results is not None


def _reads_of(operations: Sequence[Operation]) -> Iterator[Read]:
    """Yield the reads of all nodes that the operations of a failed change name."""
    for operation in operations:
        yield from both(_known_path(operation))


def _known_path(operation: Operation) -> str:
    """Return the operation's path. For a sequence node to be created, whose name is not known yet, return the path of
    its parent."""
    is_sequence = isinstance(operation, Create) and operation.sequence
    return split_path(operation.path + "0")[0] if is_sequence else operation.path


def _after(operation: Create | Set | Delete, result: Any) -> Node | None:
    """Return the node after a change that contained this operation, None if it is deleted."""
    if isinstance(operation, Create):
        return Node(operation.data, 0, 0, 0, operation.ephemeral)
    return result if isinstance(operation, Set) else None
