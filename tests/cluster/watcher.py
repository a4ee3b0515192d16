"""Records the high watermarks that leaders return, with leader epochs: `python -m tests.cluster.watcher JSON`.

The watcher sends ListOffsets with the leader epoch, which a broker refuses if it leads in another epoch. The watcher
ends when its standard input is closed.
"""

import json
import sys
import threading
from collections import defaultdict
from pathlib import Path

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from tests.cluster.history import Writer
from tests.harness.wire import Wire

EVERY_S = 0.1
TIMEOUT_S = 1.5


class Watcher:
    """Asks all leaders in turn."""

    def __init__(self, bootstrap: str, topics: list[str], history: Writer) -> None:
        self._bootstrap = bootstrap.split(",")
        self._topics = set(topics)
        self._history = history
        self._wires: dict[str, Wire] = {}

    def look(self) -> None:
        """Ask every leader, in every epoch, that the Metadata of any broker names."""
        leaders: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
        for address in self._bootstrap:
            try:
                answer = self._wire(address).call(apis.METADATA, 9, topics=None, allow_auto_topic_creation=False)
            except (OSError, AssertionError):
                self._wires.pop(address, None)
                continue
            brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
            for topic in answer.topics:
                for one in topic.partitions if topic.name in self._topics else ():
                    leader = (brokers.get(one.leader_id, ""), one.leader_epoch)
                    known = leaders[topic.name, one.partition_index]
                    if leader[0] and leader not in known:
                        known.append(leader)
        by_leader: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for (name, partition), found in leaders.items():
            for address, epoch in found:
                by_leader[address].append((name, partition, epoch))
        for address, wanted in by_leader.items():
            try:
                self._ask(address, wanted)
            except (OSError, AssertionError):
                self._wires.pop(address, None)

    def _ask(self, address: str, wanted: list[tuple[str, int, int]]) -> None:
        topics = apis.LIST_OFFSETS.Request.Topics
        epochs = {(name, partition): epoch for name, partition, epoch in wanted}
        asked: dict[str, list[object]] = defaultdict(list)
        for (name, partition), epoch in epochs.items():
            one = topics.Partitions(partition_index=partition, current_leader_epoch=epoch, timestamp=-1)
            asked[name].append(one)
        answer = self._wire(address).call(
            apis.LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=0,
            topics=[topics(name=name, partitions=partitions) for name, partitions in asked.items()],
        )
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code == Errors.NONE:
                    key = topic.name, one.partition_index
                    self._history("hw", topic=key[0], p=key[1], epoch=epochs[key], hw=one.offset)

    def _wire(self, address: str) -> Wire:
        if address not in self._wires:
            self._wires[address] = Wire(address, TIMEOUT_S)
        return self._wires[address]


def main() -> None:
    options = json.loads(sys.argv[1])
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    history = Writer(Path(options["file"]), options["client"], "watcher")
    watcher = Watcher(options["bootstrap"], options["topics"], history)
    while not ended.wait(EVERY_S):
        watcher.look()
    history.close()


if __name__ == "__main__":
    main()
