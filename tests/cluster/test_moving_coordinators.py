"""Groups and transactions of real clients continue while coordinators move between kafkapy and Kafka, and die.

The clients are those of the histories: producers, consumers, members of groups and transactional copiers of librdkafka
and Java. The first broker is the controller, of Apache Kafka.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import nemesis
from tests.cluster.histories import check_history
from tests.harness.cluster import Cluster

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]
KINDS = {
    "one of kafkapy": ("kafka", "kafka", "kafkapy"),
    "two of kafkapy": ("kafka", "kafkapy", "kafkapy"),
}
CONTROLLER = 1
Step = Callable[[Cluster, random.Random], nemesis.Done]


def lead(number: int) -> Step:
    def move(cluster: Cluster, rng: random.Random) -> nemesis.Done:
        nemesis.move_coordinators_to(cluster, number)
        return nemesis.Done(f"make broker {number} the coordinator", 3)

    return move


def kill(number: int) -> Step:
    def kill(cluster: Cluster, rng: random.Random) -> nemesis.Done:
        cluster[number].kill()
        return nemesis.Done(f"kill broker {number}", nemesis.BEYOND_TIMEOUTS_S)

    return kill


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_groups_and_transactions_go_on_while_their_coordinators_move_and_die(
    kinds: tuple[str, ...], tmp_path: Path
) -> None:
    steps = [lead(3), lead(2), lead(3), kill(3), lead(2), kill(2), lead(CONTROLLER)]
    with Cluster(tmp_path / "cluster", kinds) as cluster:
        check_history(cluster, tmp_path / "history", 1, random.Random(1), steps)
