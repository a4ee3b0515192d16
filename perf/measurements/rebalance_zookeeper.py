"""The time of a rebalance through ZooKeeper: the ConsumerConnector and the high-level consumer of Kafka 0.8.2.2.

In these rows the side `kafka` is that consumer, not Apache Kafka's broker; the broker is kafkapy. All members of a
group are in one process (Kafka's in a JVM), with default settings except for the number of retries. One more member
joins a stable group; the time is from its registration to the last claim of a partition, both by ZooKeeper's clock, in
ms.
"""

from __future__ import annotations

from statistics import median

from perf import jars
from perf.cpu import used
from perf.measurement import FULL, KAFKA, KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.zookeeper_members import Group, Members

SIZES = (2, 10, 50)
PARTITIONS = 100
TOPIC = "shared"


class RebalanceZooKeeper(Measurement):
    name = "rebalance_zookeeper"
    about = (
        f"from the join of the last of {', '.join(map(str, SIZES))} consumers until each of {PARTITIONS} partitions "
        "has an owner, through ZooKeeper, compared with Kafka 0.8.2.2's consumer"
    )
    quick = False  # waits until groups are stable, a minute in all
    rows = (
        *(
            Row(f"rebalance_zookeeper.{size}", f"rebalance of {size} in ZooKeeper, peer: 0.8.2.2", "s", "lower",
                Goal(1.0), digits=2)
            for size in SIZES
        ),
        Row("rebalance_zookeeper.cpu", f"CPU of the members for a rebalance of {SIZES[-1]}, peer: 0.8.2.2", "s",
            "lower", digits=2),
    )  # fmt: skip

    def fetch(self) -> None:
        jars.fetch()  # ZooKeeper
        jars.fetch(jars.ORIGINAL)

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.data() as path:
            connect = bench.fleet.zookeeper(path.name)
            with bench.fleet.running(KAFKAPY, path, {"zookeeper.connect": connect}) as broker:
                with RawClient(broker.port) as client:
                    client.create_topic(TOPIC, PARTITIONS)
                for size in SIZES:
                    name = f"{'kafka' if kind == KAFKA else 'kafkapy'}-{size}"
                    with (
                        Members(kind, connect, name, TOPIC, path / f"{name}.out") as members,
                        Group(connect, name, TOPIC, PARTITIONS) as group,
                    ):
                        took, cpu = _joins(members, group, size, 2 if bench.scale.name == FULL.name else 1)
                    found[f"rebalance_zookeeper.{size}"] = took
                    found["rebalance_zookeeper.cpu"] = cpu  # of the last and largest group
        return found


def _joins(members: Members, group: Group, size: int, count: int) -> tuple[float, float]:
    """Let one more member join `count` times; return the medians of the seconds and the members' CPU seconds."""
    for number in range(size - 1):
        members.send("join", f"m{number}")
    group.settled(size - 1)
    took, cpu = [], []
    for number in range(count):
        last = f"last{number}"
        with used(members.pid) as usage:
            members.send("join", last)
            owned = group.settled(size)
        took.append((max(one.since for one in owned.values()) - group.joined(last)) / 1000)
        cpu.append(usage.cpu)
        if number < count - 1:
            members.send("leave", last)
            group.settled(size - 1)
    return median(took), median(cpu)
