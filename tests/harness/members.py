"""Groups whose members run in other processes, in every language, and the events that the members report.

A Host is a process with members of one kind; a Group collects the events of all its members, from any hosts. See
tests/interop/python/host.py for the commands and events; the other languages' programs speak the same.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.harness import toolchain
from tests.harness.clients.remote import INTEROP, FranzGo, Java3, Java4, KafkaJs, java_command

PATIENCE_S = 60.0
KINDS = ("confluent-kafka", "kafka-python", "aiokafka", Java3.name, Java4.name, FranzGo.name, KafkaJs.name, "kafkapy")
STATIC_KINDS = tuple(kind for kind in KINDS if kind != KafkaJs.name)  # kafkajs 2.2.4 has no group.instance.id
FENCING_KINDS = tuple(kind for kind in STATIC_KINDS if kind != "aiokafka")  # aiokafka treats this error like any other
COOPERATIVE_KINDS = ("confluent-kafka", "kafka-python", Java3.name, Java4.name, FranzGo.name, "kafkapy")


def host_command(kind: str, bootstrap: str) -> list[str]:
    """Return the command line of a host. Build the host first if needed."""
    versions = {each.name: each.version for each in (Java3, Java4)}
    if kind in versions:
        return [*java_command(versions[kind], "kafkapy.interop.Members"), bootstrap]
    if kind == FranzGo.name:
        return [str(toolchain.go_program(INTEROP / "go")), bootstrap, "members"]
    if kind == KafkaJs.name:
        return [toolchain.find("node"), str(toolchain.node_modules(INTEROP / "node") / "members.js"), bootstrap]
    return [sys.executable, str(INTEROP / "python" / "main.py"), bootstrap, kind]


class Host:
    """A process with any number of members, which end with the process."""

    def __init__(self, kind: str, bootstrap: str) -> None:
        self.kind = kind
        self.living: set[str] = set()  # its members that have not ended
        self.hear: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._complaints: list[str] = []
        self.child = subprocess.Popen(
            host_command(kind, bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        self._listeners = [
            threading.Thread(target=listen, daemon=True) for listen in (self._read_events, self._read_complaints)
        ]
        for listener in self._listeners:
            listener.start()

    def _read_events(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            event = json.loads(line) if line.endswith("\n") else {"member": None}  # cut short by SIGKILL
            if event["member"] in self.hear:
                self.hear[event["member"]](event)
            if event.get("event") in ("left", "failed"):
                self.living.discard(event["member"])

    def _read_complaints(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self._complaints.append(line)
            del self._complaints[:-100]

    @property
    def complaints(self) -> str:
        """Return the end of the process's standard error, and its exit code if it has ended."""
        code = self.child.poll()
        return "".join(self._complaints)[-2000:] + ("" if code is None else f"{self.kind} ended with {code}\n")

    def tell(self, op: str, member: str, **arguments: Any) -> None:
        """Send a command to the process."""
        assert self.child.stdin is not None
        if op == "join":
            self.living.add(member)
        self.child.stdin.write(json.dumps({"op": op, "member": member, **arguments}) + "\n")
        self.child.stdin.flush()

    def empty(self) -> None:
        """Tell the members that have not ended to leave."""
        if self.child.poll() is None:
            for member in list(self.living):
                self.tell("leave", member)

    def kill(self) -> None:
        """Kill the process. Return when its earlier events have been received."""
        self.child.kill()
        self.child.wait(30)
        for listener in self._listeners:
            listener.join(10)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP."""
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process with SIGCONT."""
        self.child.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Make all members leave and the process end."""
        assert self.child.stdin is not None
        if self.child.poll() is None:
            self.thaw()
            self.child.stdin.close()

    def close(self) -> None:
        """End the process and wait for it."""
        self.end()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


class Hosts:
    """One host of each kind for all tests, started at its first use, and hosts for tests that kill them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._shared: dict[str, Host] = {}
        self._own: list[Host] = []

    def shared(self, kind: str) -> Host:
        """Return the shared host of this kind, which a test may not kill or freeze."""
        if kind not in self._shared:
            self._shared[kind] = Host(kind, self._bootstrap)
        return self._shared[kind]

    def own(self, kind: str) -> Host:
        """Start a new host that the test may kill."""
        self._own.append(Host(kind, self._bootstrap))
        return self._own[-1]

    def end_test(self) -> None:
        """Make the members that a test has left behind leave, and end the hosts that only the test used: they would
        take CPU time until the end of the session."""
        for host in self._shared.values():
            host.empty()
        for host in self._own:
            if host.child.poll() is None:
                host.child.kill()
        for host in self._own:
            host.kill()
        self._own.clear()

    def close(self) -> None:
        """End all hosts."""
        hosts = [*self._shared.values(), *self._own]
        for host in hosts:
            host.end()
        for host in hosts:
            host.close()


@dataclass
class Member:
    """The state of a member according to its events so far."""

    name: str
    host: Host
    address: str  # its name in its host
    generation: int = -1
    id: str = ""
    owned: set[int] = field(default_factory=set)
    assignments: int = 0  # number of its assignments, one for each rebalance
    ended: dict[str, Any] | None = None  # its `left` or `failed`


class Group:
    """A consumer group that reads one topic."""

    def __init__(self, name: str, topic: str, partitions: int, *, assignor: str = "range") -> None:
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.assignor = assignor
        self.events: list[dict[str, Any]] = []  # of all members, in the order of arrival
        self.members: dict[str, Member] = {}
        self.done: dict[int, set[int]] = {p: set() for p in range(partitions)}  # processed offsets
        self._joins = 0
        self._news = threading.Condition()

    def join(
        self,
        name: str,
        host: Host,
        *,
        session_ms: int = 30_000,
        rebalance_ms: int = 60_000,
        instance: str | None = None,
    ) -> Member:
        """Start a member. `name` is its name in the group."""
        self._joins += 1
        member = self.members[name] = Member(name, host, f"{self.name}/{name}/{self._joins}")
        host.hear[member.address] = lambda event: self._hear(member, event)
        host.tell(
            "join",
            member.address,
            group=self.name,
            topic=self.topic,
            assignor=self.assignor,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            instance=instance,
        )
        return member

    def tell(self, name: str, op: str) -> None:
        """Send a member the command `leave`, `stall` or `resume`."""
        member = self.members[name]
        member.host.tell(op, member.address)

    def leave(self, *names: str) -> None:
        """Make the members leave the group, as at the end of a program."""
        for name in names:
            self.tell(name, "leave")
        self.until(lambda: all(self.members[name].ended for name in names), f"{names} to leave")
        for name in names:
            ended = self.members.pop(name).ended
            assert ended is not None
            assert ended["event"] == "left", ended

    def lose(self, name: str) -> Member:
        """Kill the member's process."""
        member = self.members.pop(name)
        member.host.kill()
        self.events.append({"member": name, "event": "died"})
        return member

    def _hear(self, member: Member, event: dict[str, Any]) -> None:
        with self._news:
            self.events.append({**event, "member": member.name})
            if event["event"] == "assigned":
                member.generation, member.id, member.owned = event["generation"], event["id"], set(event["owned"])
                member.assignments += 1
            elif event["event"] in ("revoked", "lost"):
                member.owned -= set(event["partitions"])
            elif event["event"] == "records":
                for p, first, last in event["runs"]:
                    self.done[p].update(range(first, last + 1))
            elif event["event"] in ("left", "failed"):
                member.owned = set()
                member.ended = event
            self._news.notify_all()

    def until(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
        """Process events until the condition is true."""
        deadline = time.monotonic() + seconds
        with self._news:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"waited {seconds} s for {what}\n{self.story()}"
                self._news.wait(min(left, 0.5))

    def story(self, last: int = 60) -> str:
        """Return the latest events as text for a failed test."""
        quiet = ("records", "committed", "commit_failed")
        shown = [event for event in self.events if event["event"] not in quiet][-last:]
        states = [
            f"{m.name} ({m.host.kind}): {m.generation} {sorted(m.owned)} {m.ended}" for m in self.members.values()
        ]
        complaints = [m.host.complaints for m in self.members.values()]
        done = {p: len(offsets) for p, offsets in self.done.items()}
        return "\n".join([*map(json.dumps, shown), *states, f"processed: {done}", *complaints])

    def is_settled(self, among: Collection[str] | None = None) -> bool:
        """Return True if each partition has one owner, and no member has two more partitions than another."""
        members = [m for name, m in self.members.items() if among is None or name in among]
        shares = [len(m.owned) for m in members]
        everything = [p for m in members for p in m.owned]
        return sorted(everything) == list(range(self.partitions)) and max(shares) - min(shares) <= 1

    def settle(self, among: Collection[str] | None = None) -> None:
        """Wait until the partitions are shared evenly (see is_settled)."""
        self.until(lambda: self.is_settled(among), f"{self.name} to settle")

    def drain_at_least(self, ends: dict[int, int]) -> None:
        """Wait until the records before these offsets are processed."""
        self.until(
            lambda: all(self.done[p].issuperset(range(end)) for p, end in ends.items()), f"the records before {ends}"
        )

    def drain(self, ends: dict[int, int]) -> None:
        """Wait until all records are processed."""
        self.until(
            lambda: all(len(self.done[p]) == end for p, end in ends.items()), f"all records of {ends} to be processed"
        )


class Feed:
    """Writes records to every partition all the time, so that members always have some to process."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self.ends = dict.fromkeys(range(partitions), 0)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self._stopping = threading.Event()
        self._failed: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        """Stop writing. Return when all records are in the topic."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(30)
        assert not self._failed, self._failed[0]
        assert left == 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.03):
            for partition in range(self._partitions):
                for _ in range(3):
                    self._producer.produce(
                        self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                    )
                    number += 1
                self.ends[partition] += 3
            self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)
