"""Short histories with chosen faults find no violation. `python -m tests.cluster.histories` runs long ones."""

import random
from pathlib import Path

import pytest

from tests.cluster import nemesis
from tests.cluster.histories import check_history
from tests.harness.cluster import Cluster

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]


def test_a_kill_a_cut_and_a_frozen_controller_with_one_kafkapy_broker(tmp_path: Path) -> None:
    steps = [nemesis.kill_one, nemesis.cut_one_direction, nemesis.freeze_controller]
    with Cluster(tmp_path / "cluster", ("kafka", "kafka", "kafkapy")) as cluster:
        check_history(cluster, tmp_path / "history", 1, random.Random(17), steps)


def test_all_are_killed_at_once_with_two_kafkapy_brokers(tmp_path: Path) -> None:
    steps = [nemesis.isolate, nemesis.kill_all]
    with Cluster(tmp_path / "cluster", ("kafkapy", "kafka", "kafkapy")) as cluster:
        check_history(cluster, tmp_path / "history", 2, random.Random(18), steps)


def test_disks_zookeeper_and_a_shutdown_fail_while_an_operator_works(tmp_path: Path) -> None:
    steps = [nemesis.kill_zookeeper, nemesis.fail_disk, nemesis.fail_while_stopping]
    with Cluster(tmp_path / "cluster", ["kafkapy"] * 3, zookeepers=3, log_dirs=2) as cluster:
        check_history(cluster, tmp_path / "history", 3, random.Random(19), steps, operated=True)
