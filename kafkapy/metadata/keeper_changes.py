"""Changes on their way to ZooKeeper: sent one behind the other, answered when a read has shown them.

Of a change whose answer was lost with the connection nobody knows whether it was made. It is looked for, by its data
and by the numbers that a change leaves on all its nodes alike (`happened`), and made again only if it is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkapy.metadata.happened import happened
from kafkapy.metadata.keeper import Session, Unanswered
from kafkapy.metadata.keeper_client import named
from kafkapy.metadata.mirror import Mirror
from kafkapy.metadata.refresh import Read, ahead, both
from kafkapy.metadata.tree import Check, Create, Done, Operation, TreeError, TreeUnavailable, split_path
from kafkapy.metadata.watches import call

# ZooKeeper ends the connection over a request that is too long for it: such a one must not be sent for ever.
_MAX_TRIES = 10


class Change(NamedTuple):
    """`tries`: how often it was sent and not answered."""

    operations: Sequence[Operation]
    done: Done
    tries: int = 0


class Changes:
    """For the tree's own thread."""

    def __init__(self, session: Session, mirror: Mirror, window: int, patience_s: float) -> None:
        self._session = session
        self._mirror = mirror
        self._window = window
        self._patience_s = patience_s
        # Answered by ZooKeeper, but no read has shown them yet.
        self._answered: list[tuple[Change, list[Any] | None, TreeError | None]] = []
        # Nobody knows whether they were made; with the last change that was known before.
        self._unsure: list[tuple[Change, int]] = []

    def __bool__(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._answered or self._unsure)

    def make(self, group: Iterable[Change]) -> set[Read]:
        """Sends them; gives what they touched, which is to be read before they are answered."""
        touched: set[Read] = set()
        for change, asked in ahead(group, self._send, self._window):
            try:
                if isinstance(asked, TreeError):
                    raise asked
                since, waited_for = asked
                results = self._session.outcome(change.operations, waited_for, self._patience_s)
            except TreeError as error:
                self._answered.append((change, None, error))
                if not isinstance(error, TreeUnavailable):  # whoever tries again has to see what stood in the way
                    touched.update(read for operation in change.operations for read in both(_home(operation)))
            except Unanswered:
                if change.tries < _MAX_TRIES:
                    self._unsure.append((change._replace(tries=change.tries + 1), since))
                else:
                    problem = TreeUnavailable("/", "ZooKeeper ends the connection over a change: is it over 1 MiB?")
                    self._answered.append((change, None, problem))
            except Exception as error:  # a login that is refused now, most likely: nobody may wait for ever
                self._answered.append((change, None, TreeUnavailable("/", f"ZooKeeper refuses: {named(error)}")))
            else:
                self._answered.append((change, results, None))
                touched.update(_touched(change.operations, results))
        return touched

    def answer(self) -> None:
        """Those that a read has shown."""
        answered, self._answered = self._answered, []
        for change, results, error in answered:
            if results is not None:
                pairs = zip(change.operations, results, strict=True)
                results = [self._mirror.nodes.get(op.path) if isinstance(op, Check) else one for op, one in pairs]
            call(change.done, results, error)

    def not_made(self) -> list[Change]:
        """Everything was read anew: of those in doubt the ones that were not made. The others are answered."""
        unsure, self._unsure = self._unsure, []
        return [change for change, since in unsure if not self._answered_by_nodes(change, since)]

    def given_up(self) -> list[Change]:
        """Those in doubt, which are not followed any more; whether they were made a later read shows."""
        unsure, self._unsure = self._unsure, []
        return [change for change, _ in unsure]

    def _send(self, change: Change) -> Any:
        """The last number known before, and what to wait for; or the error of a change that nobody need be asked."""
        since = self._session.last_change
        try:
            return since, self._session.change(change.operations)
        except TreeError as error:
            return error
        except Exception as error:  # a caller's mistake must not end the thread
            return TreeUnavailable("/", f"not a change: {error}")

    def _answered_by_nodes(self, change: Change, since: int) -> bool:
        results = happened(change.operations, since, self._mirror.nodes.get, self._mirror.children)
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
