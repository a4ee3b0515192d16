"""The office of the controller, as its changes of the tree carry it: no change of one whose office is over is made.

Whoever becomes controller raises the number in `/controller_epoch`, in the same change in which it makes `/controller`
its own. So the version of that node stands for the office, and every change that only a controller may make demands
it, as a part of the change itself. What can happen, then, between a broker that was the controller (A), and one that
becomes it (B):

1. A's change, then B's election: B reads the tree after it was elected, and sees the change.
2. B's election, then A's change, sent before A knew: the demand fails, and with it the whole change. A answers
   NOT_CONTROLLER, which clients take for a reason to look for the controller and ask again.
3. A's session expires and nobody else is elected: the version is the same, and A's change is made. That harms nobody,
   for nobody has read the tree as a controller in between.
4. A is elected again: that raises the number too. A change of its former office that was still on its way fails as
   in 2; whoever asked for it asks again, and it is made in the new office. It is not sent again behind the asker's
   back: another controller may have made something else of the same topic in between.

Settings, offsets, producer ids and registrations are no controller's matter: any broker may write them, as with
Kafka. Source: KafkaZkClient's expectedControllerEpochZkVersion, KafkaController's ControllerMovedException.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import BadVersion, Check, Delete, NoNode, Operation, Tree, TreeError

_NOBODYS = -2  # a version that no node has


class Term(NamedTuple):
    """One time in office: the controller epoch, and the version that `/controller_epoch` has as long as it lasts."""

    epoch: int
    version: int


class Office:
    """This process's. Until `enter` is called nobody else is taken to know the tree, and nothing is demanded."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._term: Term | None = None

    @property
    def epoch(self) -> int:
        """The controller epoch that partition states are written with."""
        return self._term.epoch if self._term is not None else 1

    def enter(self, term: Term | None) -> None:
        """From now on changes are made in this term; None: another is the controller, and none may be made."""
        self._term = term if term is not None else Term(0, _NOBODYS)

    def fenced(self, operations: Sequence[Operation]) -> list[Operation]:
        """The change, as one that is only made in office."""
        if self._term is None:
            return list(operations)
        return [Check(paths.CONTROLLER_EPOCH, self._term.version), *operations]

    def discard(self, path: str) -> None:
        """Removes a node that others may remove too. Waits; raises TreeError, KafkaError NOT_CONTROLLER."""
        try:
            self._tree.commit(self.fenced([Delete(path)]))
        except NoNode as error:
            if error.path != path:
                raise
        except BadVersion as error:
            raise out_of_office(error) or error from error


def out_of_office(error: TreeError) -> KafkaError | None:
    """NOT_CONTROLLER for the refusal of a change whose office is over."""
    if isinstance(error, BadVersion) and error.path == paths.CONTROLLER_EPOCH:
        return KafkaError(Errors.NOT_CONTROLLER, "this broker is not the controller any more")
    return None
