"""Group members in their own process. Commands are read, and events of the members are written, as JSON lines.

Commands: `{"op": "join", "member": NAME, "group": ..., "topic": ..., "assignor": ..., "session_ms": ...,
"rebalance_ms": ..., "instance": ID or null}`, `{"op": "leave", "member": NAME}`, `{"op": "stall", ...}` (the member
does not poll; heartbeats continue if the client sends them by itself), `{"op": "resume", ...}`. At the end of the
input all members leave.

Events: `assigned` (the generation, the member's id and all partitions that it owns now), `revoked`, `lost`, `records`
(the generation whose assignment gave them, runs of [partition, first offset, last offset]), `committed` and
`commit_failed` (the same runs, when the broker has answered the commit), `failed` (the member is gone), `left`. A
member reports records, then commits them, and only then polls again. It repeats a refused commit as long as it owns
the partition.
"""

import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

_output = threading.Lock()


def emit(member: str, event: str, **about: Any) -> None:
    """Write one event at once."""
    with _output:
        sys.stdout.write(json.dumps({"member": member, "event": event, **about}) + "\n")
        sys.stdout.flush()


def runs(places: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return (partition, offset) pairs as runs [partition, first, last] of consecutive offsets."""
    found: list[list[int]] = []
    for partition, offset in sorted(places):
        if found and found[-1][0] == partition and found[-1][2] == offset - 1:
            found[-1][2] = offset
        else:
            found.append([partition, offset, offset])
    return found


class Member(ABC):
    """A member on its own thread. Subclasses implement it with a client."""

    kinds: ClassVar[dict[str, type["Member"]]] = {}

    def __init_subclass__(cls, *, kind: str) -> None:
        Member.kinds[kind] = cls

    def __init__(self, bootstrap: str, wanted: dict[str, Any]) -> None:
        self.bootstrap = bootstrap
        self.wanted = wanted
        self.topic: str = wanted["topic"]
        self.generation = -1
        self.owned: set[int] = set()
        self.unsaved: list[list[int]] = []  # runs without an acknowledged commit
        self.leaving = threading.Event()
        self.moving = threading.Event()
        self.moving.set()
        self.thread = threading.Thread(target=self._live, daemon=True)

    def emit(self, event: str, **about: Any) -> None:
        emit(self.wanted["member"], event, **about)

    def assigned(self, generation: int, member_id: str, owned: Iterable[int]) -> None:
        """Report the assignment of a completed rebalance."""
        self.generation, self.owned = generation, set(owned)
        self.emit("assigned", generation=generation, id=member_id, owned=sorted(self.owned))

    def gone(self, event: str, partitions: Iterable[int]) -> None:
        """Report that partitions were revoked or lost."""
        partitions = sorted(partitions)
        self.owned -= set(partitions)
        self.unsaved = [run for run in self.unsaved if run[0] in self.owned]
        self.emit(event, partitions=partitions, generation=self.generation)

    def taken(self, places: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Report processed records. Return the offsets to commit by partition, with those of refused commits."""
        new = runs(places)
        if new:
            self.emit("records", generation=self.generation, runs=new)
            self.unsaved += new
        return {p: max(run[2] for run in self.unsaved if run[0] == p) + 1 for p in {run[0] for run in self.unsaved}}

    def refused(self, generation: int, failure: BaseException) -> None:
        """Report a refused commit, which a rebalance may cause."""
        self.emit("commit_failed", code=code_of(failure), generation=generation, runs=self.unsaved)

    def saved(self, generation: int) -> None:
        """Report an acknowledged commit."""
        self.emit("committed", generation=generation, runs=self.unsaved)
        self.unsaved = []

    def _live(self) -> None:
        try:
            self.live()
        except Exception as failure:  # every failure is reported to the test
            self.emit("failed", code=code_of(failure), message=repr(failure))
        else:
            self.emit("left")

    @abstractmethod
    def live(self) -> None:
        """Join the group, work until `leaving` is set, and leave."""


def code_of(failure: BaseException) -> int:
    """Return Kafka's error code of a client's exception, -1 if it has none."""
    argument = failure.args[0] if failure.args else None
    if hasattr(argument, "code"):
        return int(argument.code())
    return int(getattr(failure, "errno", None) or -1)


def serve(bootstrap: str, kind: str) -> None:
    """Run commands until the input ends."""
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["member"]
        if command["op"] == "join":
            members[name] = Member.kinds[kind](bootstrap, command)
            members[name].thread.start()
        elif command["op"] == "leave":
            members[name].leaving.set()
            members[name].moving.set()
        elif command["op"] == "stall":
            members[name].moving.clear()
        elif command["op"] == "resume":
            members[name].moving.set()
    for member in members.values():
        member.leaving.set()
        member.moving.set()
    for member in members.values():
        member.thread.join(20)
