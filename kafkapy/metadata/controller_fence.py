"""Fences the changes of a former controller: a controller's change is only made if it is still the controller.

A new controller increases the number in `/controller_epoch` in the same change in which it creates `/controller`. So
the version of that node identifies its term, and every change that only a controller may make contains a check of this
version. For a broker A that was the controller and a broker B that becomes it:

1. A's change, then B's election: B reads the tree after its election, and sees the change. 2. B's election, then A's
change, sent before A knew: the check fails, and with it the whole change. A answers
   NOT_CONTROLLER, which makes clients find the controller and retry.
3. A's session expires and nobody else is elected: the version is unchanged, so A's change is made. This is harmless,
   because no other controller has read the tree meanwhile.
4. A is elected again: this increases the epoch too, so a change of its former term that is still in flight fails as in
   2, and the client's retry is made in the new term. A does not retry by itself, because another controller may have
   changed the same topic in between.

Settings, offsets, producer ids and registrations are not fenced: as in Kafka, any broker may write them. Source:
KafkaZkClient's expectedControllerEpochZkVersion, KafkaController's ControllerMovedException.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import BadVersion, Check, Delete, NoNode, Operation, Tree, TreeError

_NO_VERSION = -2  # a version that no node has, so the check always fails


class Term(NamedTuple):
    """A controller's term: its controller epoch, and the version of `/controller_epoch` during the term."""

    epoch: int
    version: int


class ControllerFence:
    """The fence of this process. Before the first `set_term` changes are not fenced (the tree is not shared)."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._term: Term | None = None

    @property
    def epoch(self) -> int:
        """The controller epoch to write into partition states."""
        return self._term.epoch if self._term is not None else 1

    def set_term(self, term: Term | None) -> None:
        """Fence changes by this term from now on; None means that this broker is not the controller, so that they all
        fail."""
        self._term = term if term is not None else Term(0, _NO_VERSION)

    def fenced(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return the operations with the check of the present term in front."""
        if self._term is None:
            return list(operations)
        return [Check(paths.CONTROLLER_EPOCH, self._term.version), *operations]

    def discard(self, path: str) -> None:
        """Delete a node unless it is gone already. Blocks; raises TreeError, KafkaError NOT_CONTROLLER."""
        try:
            self._tree.commit(self.fenced([Delete(path)]))
        except NoNode as error:
            if error.path != path:
                raise
        except BadVersion as error:
            raise not_controller_error(error) or error from error


def not_controller_error(error: TreeError) -> KafkaError | None:
    """Return NOT_CONTROLLER if the change failed because its term is over, else None."""
    if isinstance(error, BadVersion) and error.path == paths.CONTROLLER_EPOCH:
        return KafkaError(Errors.NOT_CONTROLLER, "this broker is no longer the controller")
    return None
