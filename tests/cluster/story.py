"""The story: what happens in the cluster, step by step. Each step is a text and a function of the stage; what the
function returns is compared, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cluster.story_stage import Stage

PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER = 2, 4


class Step(NamedTuple):
    """What happens, and how."""

    text: str
    do: Callable[[Stage], Any]


BEGINNING = [
    Step("three recording brokers start", lambda s: s.start(3, 4, 5)),
    Step("broker 2 starts", lambda s: s.start_other()),
    Step("a topic is created with an assignment", lambda s: s.create("a", [[3, 4, 5], [4, 5, 3], [5, 3, 4]])),
    Step("a topic with settings", lambda s: s.create("b", [[1, 2, 3], [2, 1, 4]], retention_ms="100000")),
    Step("a topic of one replica", lambda s: s.create("c", [[4]])),
    Step("a topic is created by hand", lambda s: s.write_topic("d", {0: [3, 4], 1: [2, 5]})),
    Step("partitions are added", lambda s: s.extend("c", 3, [[5], [3]])),
    Step("partitions are added by hand", lambda s: s.extend_by_hand("d", [5, 3])),
    Step("the leader takes a follower out of the ISR", lambda s: s.alter_isr("a", 0, [3, 4])),
    Step("and takes it in again", lambda s: s.alter_isr("a", 0, [3, 4, 5])),
    Step("broker 3 is gone", lambda s: s.stop(3)),
    Step("broker 3 is back", lambda s: s.start(3)),
    Step("its replicas are in sync again", lambda s: [s.alter_isr("a", 0, [4, 5, 3]), s.alter_isr("a", 2, [5, 4, 3])]),
    Step("preferred leaders are elected", lambda s: s.elect(PREFERRED, a=[0, 1, 2])),
    Step("a partition moves", lambda s: s.reassign("a", {0: [4, 5, 3]})),
    Step("a partition moves to a broker that is new for it", lambda s: s.reassign("c", {0: [3]})),
    Step("its new replica is in sync", lambda s: s.alter_isr("c", 0, [4, 3])),
    Step("the controller's term ends", lambda s: s.move_controller()),
    Step("a topic is deleted", lambda s: s.delete("c")),
    Step("broker 2 stops", lambda s: s.stop_other()),
]

STORY = [*BEGINNING]
