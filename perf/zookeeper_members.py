"""Members of one group in ZooKeeper, many in one process, and the state of the group in its znodes.

As a program it runs kafkapy's ConsumerConnector, with the arguments and the input of java/GroupMembers.java.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from perf import jars
from perf.machine import ROOT
from perf.measurement import KAFKA

# More retries than by default: members that join at the same time conflict again and again.
SETTINGS = {"rebalance.max.retries": "100", "auto.offset.reset": "smallest"}
QUIET_S = 3.0  # a group is stable if nothing has changed for longer than the back-off (2 s)
TIMEOUT_S = 120.0
_POLL_S = 0.1


class Members:
    """A process with members. `side`: KAFKA runs the consumers of 0.8.2.2. The output goes to the file `log`."""

    def __init__(self, side: str, connect: str, group: str, topic: str, log: Path) -> None:
        settings = {"zookeeper.connect": connect, "group.id": group, **SETTINGS}
        words = [topic, *(f"{name}={value}" for name, value in settings.items())]
        if side == KAFKA:
            source = str(ROOT / "perf" / "java" / "GroupMembers.java")
            command = ["java", "-Xmx1G", "-cp", jars.class_path(jars.ORIGINAL), source, *words]
        else:
            command = [sys.executable, "-m", "perf.zookeeper_members", *words]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True, start_new_session=True
            )
        self.pid = self._process.pid

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()


class Owned(NamedTuple):
    """The owner of a partition, and since when, in ms by ZooKeeper's clock."""

    consumer: str
    since: int


class Group:
    """The znodes of a group that reads one topic."""

    def __init__(self, connect: str, group: str, topic: str, partitions: int) -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(connect)
        self._client.start()
        self._ids = f"/consumers/{group}/ids"
        self._owners = f"/consumers/{group}/owners/{topic}"
        self._group = group
        self._partitions = partitions

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def settled(self, members: int) -> dict[str, Owned]:
        """Wait until this many members together own all partitions and nothing changes any more; return the owners."""
        deadline = time.monotonic() + TIMEOUT_S
        since, last = time.monotonic(), (0, 0)
        while True:
            time.sleep(_POLL_S)
            state = self._state()
            if state != last or state[0] < self._partitions:
                since, last = time.monotonic(), state
            elif time.monotonic() - since >= QUIET_S:
                owned = self._owned()
                owners = len({one.consumer for one in owned.values()})
                if owners == members:
                    return owned
                since = time.monotonic()
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self._group}: the assignment of {members} members is not stable after {TIMEOUT_S:.0f} s; "
                    f"{state[0]} of {self._partitions} partitions are owned"
                )

    def joined(self, consumer: str) -> int:
        """Return when a consumer registered, in ms by ZooKeeper's clock."""
        return int(self._client.get(f"{self._ids}/{self._group}_{consumer}")[1].ctime)

    def _state(self) -> tuple[int, int]:
        """Return how many partitions have an owner, and the number of claims and releases, with one cheap request."""
        stat = self._client.exists(self._owners)
        return (stat.numChildren, stat.cversion) if stat is not None else (0, 0)

    def _owned(self) -> dict[str, Owned]:
        from kazoo.exceptions import NoNodeError

        found = {}
        for name in self._client.get_children(self._owners):
            try:
                data, stat = self._client.get(f"{self._owners}/{name}")
            except NoNodeError:
                continue
            found[name] = Owned(data.decode().rpartition("-")[0], stat.ctime)
        return found


def main(topic: str, *words: str) -> None:
    from kafkapy.client.original.consuming.connector import ConsumerConnector

    settings = dict(one.split("=", 1) for one in words)
    members: dict[str, ConsumerConnector] = {}

    def join(name: str) -> None:
        members[name] = ConsumerConnector({**settings, "consumer.id": name})
        members[name].create_message_streams({topic: 1})

    for line in sys.stdin:
        word, name = line.split()
        if word == "join":
            threading.Thread(target=join, args=(name,), daemon=True).start()
        else:
            threading.Thread(target=members.pop(name).shutdown, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
