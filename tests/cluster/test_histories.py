"""Short histories: a bounded number of rounds with known faults. `python -m tests.cluster.histories` runs long ones."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import nemesis
from tests.cluster.histories import run_history
from tests.harness.cluster import Cluster

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]
KINDS = {
    "three of Kafka": ("kafka", "kafka", "kafka"),
}


@pytest.fixture(scope="module", params=list(KINDS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), KINDS[request.param]) as running:
        yield running


def test_a_history_with_a_kill_a_cut_and_a_frozen_controller(cluster: Cluster, tmp_path: Path) -> None:
    faults = (nemesis.kill_one, nemesis.cut_one_direction, nemesis.freeze_controller)
    assert run_history(cluster, tmp_path, 1, random.Random(17), faults) == []


def test_a_history_in_which_all_are_killed_at_once(cluster: Cluster, tmp_path: Path) -> None:
    assert run_history(cluster, tmp_path, 2, random.Random(18), [nemesis.kill_all] * 2) == []
