"""Fences the changes of a former controller: a metadata change that only a controller may make succeeds only while the
broker that sends it is still the controller.

A new controller increases the number in the node `/controller_epoch` in the same change in which it creates
`/controller`. So the version of the node `/controller_epoch` identifies the controller's term, and every change that
only a controller may make contains a check of this version. For a broker A that was the controller and a broker B that
becomes the controller, there are these cases:

1. A's change is made before B's election. B reads the tree after its election, so B sees the change.
2. B's election comes before A's change, which A sent before it knew of the election. The check fails, and with it the
   whole change. A answers NOT_CONTROLLER, which makes clients find the controller and retry.
3. A's session expires and nobody else is elected. The version is unchanged, so A's change is made. This is harmless,
   because no other controller has read the tree meanwhile.
4. A is elected again. This increases the epoch too, so a change of A's former term that is still in flight fails as in
   case 2, and the client's retry is made in the new term. A does not retry by itself, because another controller may
   have changed the same topic in between.

Settings, offsets, producer ids and broker registrations are not fenced: as in Kafka, any broker may write them. Source:
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
    """A controller's term: its controller epoch, and the version that the node `/controller_epoch` has during the
    term."""

    epoch: int
    version: int


class ControllerFence:
    """Adds to metadata changes the check that this broker is still the controller. Before the first `set_term`, no
    check is added; this is for a metadata tree that no other broker shares."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._term: Term | None = None

    @property
    def epoch(self) -> int:
        """The controller epoch to write into partition states, 1 if no term was set."""
        return self._term.epoch if self._term is not None else 1

    @property
    def is_held(self) -> bool:
        """True while this broker is the controller, as far as it knows."""
        return self._term is not None and self._term.version != _NO_VERSION

    def set_term(self, term: Term | None) -> None:
        """Make changes succeed from now on only during this controller term. None means that this broker is not the
        controller, so that all fenced changes fail."""
        self._term = term if term is not None else Term(0, _NO_VERSION)

    def fenced(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return the operations of a metadata change with a check of the current controller term in front."""
        if self._term is None:
            return list(operations)
        return [Check(paths.CONTROLLER_EPOCH, self._term.version), *operations]

    def verify(self) -> None:
        """Raise KafkaError NOT_CONTROLLER if the controller term is over. Blocks. Raises TreeError if the metadata tree
        cannot be asked."""
        try:
            if check := self.fenced([]):
                self._tree.commit(check)
        except BadVersion as error:
            raise not_controller_error(error) or error from error

    def discard(self, path: str) -> None:
        """Delete a metadata node; do nothing if the node does not exist. Blocks until the change is made. Raises
        KafkaError NOT_CONTROLLER if the controller term is over, otherwise TreeError."""
        try:
            self._tree.commit(self.fenced([Delete(path)]))
        except NoNode as error:
            if error.path != path:
                raise
        except BadVersion as error:
            raise not_controller_error(error) or error from error


def not_controller_error(error: TreeError) -> KafkaError | None:
    """Return KafkaError NOT_CONTROLLER if a metadata change failed because this broker is no longer the controller.
    Return None for any other error."""
    if isinstance(error, BadVersion) and error.path == paths.CONTROLLER_EPOCH:
        return KafkaError(Errors.NOT_CONTROLLER, "this broker is no longer the controller")
    return None
