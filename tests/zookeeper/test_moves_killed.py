"""`kafkapy zk export` and `import` can be killed at any moment: the same command, run again, completes the move.

After each kill the broker's metadata is in exactly one place: in the old one, or completely in the new one.
"""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.consumer_offsets import offset_operations
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.paths import CONSUMERS
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.transfer import NodeData, persistent_nodes
from kafkapy.metadata.tree import wait
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.metadata_store import StartError, open_tree
from kafkapy.server.unadopted import EXPORTED
from tests.faults.rounds import rounds
from tests.zookeeper.conftest import OpenTree

KILLS = rounds(3)
TOPICS = 40
# About the duration of a move. Later kills would find the move complete.
WHOLE_S = 0.8
# A script that prints a line when all modules are imported and the move begins. Transactions are small, so that there
# are many moments between them at which the script can be killed.
COMMAND = """
import sys
import kafkapy.server.relocation
from kafkapy.metadata.zookeeper import batches
from kafkapy.tools.main import main
batches._MAX_OPERATIONS = 20
print("begins", flush=True)
sys.exit(main(sys.argv[1:]))
"""


class Move:
    """`zk export` or `zk import` in a process of its own."""

    def __init__(self, kind: str, connect: str, home: Path) -> None:
        self._words = ["zk", kind, "--zookeeper", connect, "--directory", str(home)]

    def run(self, *, die_after_s: float | None = None) -> tuple[int, str, float]:
        """Run the command. Return its exit code, its output, and its duration in seconds."""
        child = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert child.stdout is not None
        with child.stdout as output:
            assert output.readline() == "begins\n"
            began = time.monotonic()
            if die_after_s is not None:
                time.sleep(die_after_s)
                child.kill()
            text = output.read()
        return child.wait(), text, time.monotonic() - began


def config_of(home: Path, connect: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "broker.id": "3",
            "log.dirs": str(home),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": connect,
        }
    )


def homes_that_start(home: Path, connect: str) -> list[str]:
    """Return the places where a broker of this directory would find its metadata: "embedded", "zookeeper" or both."""
    found = []
    for name, where in (("embedded", ""), ("zookeeper", connect)):
        config = config_of(home, where)
        logs = LogManager([home], LogConfig(), clock=SYSTEM_CLOCK, scheduler=Scheduler(SYSTEM_CLOCK, 1))
        try:
            open_tree(config, logs, lambda error: None).close()
            found.append(name)
        except StartError:
            pass
        finally:
            logs.close()
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the log directory of a stopped broker with topics, settings, and offsets of old consumers."""
    directory = tmp_path / "home"
    server = BrokerServer(config_of(directory, ""))
    server.start()
    server.stop()
    tree = LocalTree(directory / FILE_NAME)
    topics = TopicRegistry(tree)
    for number in range(TOPICS):
        wait(topics.create, f"t{number}", {0: [3], 1: [3]}, {"segment.bytes": str(4096 + number)})
    ConfigRegistry(tree).alter_broker_default(lambda _: {"log.retention.ms": "1234"})
    offsets = {f"{CONSUMERS}/g/offsets/t{number}/0": b"%d" % number for number in range(TOPICS)}
    tree.commit(offset_operations(offsets, [CONSUMERS]))
    tree.close()
    return directory


def nodes(tree: Any) -> dict[str, NodeData]:
    try:
        return dict(persistent_nodes(tree))
    finally:
        tree.close()


def test_a_killed_move_leaves_the_metadata_in_one_place_and_can_be_completed(
    home: Path, connect: str, open_tree: OpenTree
) -> None:
    chance = random.Random(7)
    before = nodes(LocalTree(home / FILE_NAME))
    export, back = Move("export", connect, home), Move("import", connect, home)
    for move, old, new in ((export, "embedded", "zookeeper"), (back, "zookeeper", "embedded")):
        for _ in range(KILLS):
            code, output, _ = move.run(die_after_s=chance.uniform(0, WHOLE_S))
            if homes_that_start(home, connect) != [old] or code == 0:
                break  # this move was complete before the kill
        code, output, _ = move.run()
        assert code == 0 or "was moved to ZooKeeper before" in output, output
        assert homes_that_start(home, connect) == [new]
        assert nodes(open_tree()) == before
        if new == "embedded":
            assert nodes(LocalTree(home / FILE_NAME)) == before
            assert not (home / EXPORTED).exists()
        else:
            assert nodes(LocalTree(home / EXPORTED)) == before
    server = BrokerServer(config_of(home, ""))
    server.start()
    try:
        assert server.wait_until_loaded(30)
        assert len(server.services.topics) == TOPICS
        assert server.services.configs.topic("t7") == {"segment.bytes": "4103"}
    finally:
        server.stop()
