"""The controller is replaced: how long it takes with 100 and with 10,000 partitions, what producers at the new one
notice, and how much memory a broker of such a cluster has.

Failover: SIGKILL of the controller. It leads a third of the partitions, and has replicas of two thirds. The time begins
when its znode `/controller` is removed, so the session time-out is not part of it. It ends when the last of the other
brokers names new leaders for all partitions that the killed broker led.

Producers: to a topic of each broker at a fixed rate, while `/controller` is deleted by hand, so that the brokers elect
a controller. The figures are of the elected broker, for BESIDE_S from the deletion.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from statistics import fmean, median

from perf import frames
from perf.cpu import resident_bytes
from perf.many import wait_for
from perf.measurement import FULL, MIB, Bench, Figures, Goal, Measurement, Row
from perf.one_kind import IDS, Cluster, cluster
from perf.pacing import pace_each
from perf.stats import percentile

FEW = 100
KILLS = 2  # with few partitions
MOST_A_TOPIC = 500
REPLICAS = [(1, 2), (2, 3), (3, 1)]
RATE, SIZE = 600, 100  # requests per second to all brokers together
ELECTIONS = 4  # while producers run; the first one does not count
WARM_S, BESIDE_S = 1.0, 2.0


class ControllerFailover(Measurement):
    name = "controller_failover"
    quick = False
    about = "another broker becomes the controller of 100 and 10,000 partitions; its producers; memory of a broker"
    rows = (
        Row("controller.failover.few", "controller failover, 100 partitions", "ms", "lower", Goal(1)),
        Row("controller.failover.many", "controller failover, 10,000 partitions", "ms", "lower", Goal(1)),
        Row("controller.failover.most", "the same, absolute", "ms", "lower", Goal(3000, None)),
        Row("controller.failover.p99", "ack at the new controller meanwhile, p99", "ms", "lower", Goal(0.5), 2),
        Row("controller.create.all", "creation of the 10,000 partitions, 2 replicas each", "s", "lower", digits=1),
        Row("controller.memory", "resident memory of a broker, 10,000 partitions", "MiB", "lower", Goal(0.3)),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        full = bench.scale.name == FULL.name
        with cluster(bench, kind) as running:
            topics = _topics(min(FEW, bench.scale.most))
            for topic, count in topics.items():
                running.create_topic(topic, _replicas(count))
            few = []
            for _ in range(KILLS if full else 1):
                controller, seconds = _failover(running, topics)
                few.append(seconds)
                running.start(controller)
                for topic, count in topics.items():
                    running.wait_in_sync(topic, _replicas(count))
                    running.elect_preferred_leaders(topic, _replicas(count))
            began = time.perf_counter()
            more = _topics(bench.scale.most - sum(topics.values()), "many")
            for topic, count in more.items():
                running.create_topic(topic, _replicas(count))
            creation = time.perf_counter() - began
            topics |= more
            memory = fmean(resident_bytes(pid) for pid in running.pids)
            time.sleep(bench.scale.paced_seconds)  # background work after the creation must not count
            acks = _acks_meanwhile(running, ELECTIONS if full else 2)
            time.sleep(bench.scale.paced_seconds)
            _, many = _failover(running, topics)
        return {
            "controller.failover.few": median(few) * 1e3,
            "controller.failover.many": many * 1e3,
            "controller.failover.most": many * 1e3,
            "controller.failover.p99": percentile(acks, 0.99) * 1e3,
            "controller.create.all": creation,
            "controller.memory": memory / MIB,
        }


def _topics(size: int, name: str = "few") -> dict[str, int]:
    """Return topic -> number of partitions, for `size` partitions in all."""
    return {f"{name}-{at}": min(MOST_A_TOPIC, size - at) for at in range(0, size, MOST_A_TOPIC)}


def _replicas(partitions: int) -> list[tuple[int, ...]]:
    return [REPLICAS[partition % len(REPLICAS)] for partition in range(partitions)]


def _failover(running: Cluster, topics: dict[str, int]) -> tuple[int, float]:
    """Kill the controller; return its id, and the seconds until the others know all new leaders."""
    killed = running.controller()
    leaders = {
        topic: {at: ids[1] for at, ids in enumerate(_replicas(count)) if ids[0] == killed}
        for topic, count in topics.items()
    }
    with running.removal("/controller") as removal:
        running.kill(killed)
        began = removal.wait()
        return killed, running.wait_for_leaders(leaders) - began


def _acks_meanwhile(running: Cluster, elections: int) -> list[float]:
    """Return the latencies of acks=1 at the elected broker, in all elections but the first, which a JVM needs."""
    running.create_topic("hot", [[number] for number in IDS])
    records = frames.batch(frames.plain_values(SIZE, 1))
    each = [frames.produce("hot", records, 1, partition) for partition in range(len(IDS))]
    found: list[float] = []
    with ExitStack() as ending:
        clients = [ending.enter_context(running.client(number)) for number in IDS]
        reply = max(client.produce_once(frame, retry=True) for client, frame in zip(clients, each, strict=True))
        for number in range(elections):
            deleted: list[float] = []
            deletion = threading.Timer(WARM_S, lambda deleted=deleted: deleted.append(_delete_controller(running)))
            deletion.start()
            acks, _ = pace_each(clients, each, reply, RATE, WARM_S + BESIDE_S)
            deletion.join()
            wait_for(lambda: running.tree.exists("/controller") is not None, "no broker is elected")
            elected = IDS.index(running.controller())
            if number:
                found += [ack.latency for ack in acks[elected] if ack.sent >= deleted[0]]
    return sorted(found)


def _delete_controller(running: Cluster) -> float:
    """Delete the znode of the controller; return the perf_counter before that."""
    began = time.perf_counter()
    running.tree.delete("/controller")
    return began
