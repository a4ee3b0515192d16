"""Topics are created and deleted, and ISRs change, with three replicas; a producer at the controller's broker.

A creation takes from the request to the controller until its response. A deletion takes until the topic's node in
ZooKeeper is gone, so that the topic can be created again: Kafka's controller responds when it has marked the topic,
kafkapy's when the logs and nodes are deleted. An ISR change is an AlterPartition request in the name of broker 3, which
leads the partitions: first one partition after the other leaves the ISR of one replica, a request each, then all
return, in requests for GATHERED partitions each. One request is in flight at a time, as a broker has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from statistics import median

from kafkapy.protocol.apis import ALTER_PARTITION, CREATE_TOPICS
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.admin import ISR_VERSION, IsrChange, delete_topic, isr_request
from perf.measurement import FULL, Bench, Figures, Goal, Measurement, Row
from perf.one_kind import IDS, Cluster, cluster
from perf.pacing import Ack, pace_each
from perf.raw_client import CREATE_TOPICS_VERSION, RawClient, check, creation
from perf.stats import percentile

SIZES = {"1": 20, "100": 5, "1000": 2}  # partitions of a topic -> repetitions
LEADER = 3  # not the controller
SHRUNK, WHOLE = (3, 1), (3, 1, 2)
GATHERED = 100
RATE, SIZE = 500, 100
BEFORE_S = 1.0  # how long the producer begins before the creation
CREATIONS = 3  # while a producer runs
WARM = 10  # topics created and deleted before


class ControllerTopics(Measurement):
    name = "controller_topics"
    quick = False
    about = "topics of 1 to 1,000 partitions created and deleted, 1,000 ISR changes; a producer at the controller"
    rows = (
        *(
            Row(f"controller.{what}.{size}", f"{what} a topic, partitions: {int(size):,}", "ms", "lower", Goal(0.7), 1)
            for size in SIZES
            for what in ("create", "delete")
        ),
        *(
            Row(f"controller.{what}.many", f"{what} 1,000 topics one by one", "s", "lower", Goal(0.7), 2)
            for what in ("create", "delete")
        ),
        Row("controller.isr.single", "1,000 ISR changes, 1 per request", "s", "lower", Goal(1), 2),
        Row("controller.isr.gathered", f"1,000 ISR changes, {GATHERED} per request", "s", "lower", Goal(1), 3),
        Row("controller.create.p99", "ack during creation of 1,000 partitions, p99", "ms", "lower", Goal(0.5), 2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        most = max(1, bench.scale.most // 10)
        full = bench.scale.name == FULL.name
        found: Figures = {}
        with cluster(bench, kind) as running, running.client(running.controller()) as client:
            _create_and_delete(running, client, "warm", 1, WARM if full else 1)
            for size, repetitions in SIZES.items():
                made, deleted = _create_and_delete(
                    running, client, f"of-{size}", min(int(size), most), repetitions if full else 1
                )
                found |= {f"controller.create.{size}": made * 1e3, f"controller.delete.{size}": deleted * 1e3}
            found["controller.create.p99"] = _ack_during_creations(running, most, CREATIONS if full else 1) * 1e3
            found |= _isr_changes(running, client, most)
            names = [f"many-{number}" for number in range(most)]
            found["controller.create.many"] = _seconds(lambda: [_create(client, name, 1) for name in names])
            found["controller.delete.many"] = _delete(running, client, names)
        return found


def _replicas(partitions: int) -> list[tuple[int, ...]]:
    """Return replicas that spread the leaders over all brokers."""
    return [(*IDS[at:], *IDS[:at]) for at in (partition % len(IDS) for partition in range(partitions))]


def _create(client: RawClient, topic: str, partitions: int) -> None:
    client.create_assigned(topic, _replicas(partitions))


def _create_and_delete(
    running: Cluster, client: RawClient, name: str, partitions: int, repetitions: int
) -> tuple[float, float]:
    """Return the medians of the seconds of a creation and of a deletion."""
    made, deleted = [], []
    for number in range(repetitions):
        topic = f"{name}-{number}"
        made.append(_seconds(lambda topic=topic: _create(client, topic, partitions)))
        running.wait_in_sync(topic, _replicas(partitions))
        deleted.append(_delete(running, client, [topic]))
    return median(made), median(deleted)


def _delete(running: Cluster, client: RawClient, topics: Sequence[str]) -> float:
    """Delete topics, one request each; return the seconds from the first request until the last node is gone."""
    with running.removal(f"/brokers/topics/{topics[-1]}") as removal:
        began = time.perf_counter()
        for topic in topics:
            delete_topic(client, topic)
        return removal.wait() - began


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _ack_during_creations(running: Cluster, partitions: int, repetitions: int) -> float:
    """Return the p99 of acks=1 at the controller's broker, of requests that are sent from the request to create a topic
    until its response, in seconds."""
    controller = running.controller()
    running.create_topic("hot", [[controller]])
    frame = frames.produce("hot", frames.batch(frames.plain_values(SIZE, 1)), 1)
    found: list[float] = []
    with running.client(controller) as producer, running.client(controller) as client:
        reply = producer.produce_once(frame, retry=True)
        for number in range(repetitions):
            found += _acks_during(running, client, f"beside-{number}", partitions, producer, frame, reply)
    return percentile(sorted(found), 0.99)


def _acks_during(
    running: Cluster, client: RawClient, topic: str, partitions: int, producer: RawClient, frame: bytes, reply: int
) -> list[float]:
    """Create a topic, and delete it again; return the latencies of the producer during the creation."""
    request = creation(topic, _replicas(partitions))
    # Encode the request now: later, that would delay the producer, which is in the same process.
    encoded = request_frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, 1, frames.CLIENT, request)
    times: list[float] = []

    def create() -> None:
        times.append(time.perf_counter())
        client.socket.sendall(encoded)
        response = client.decode(CREATE_TOPICS, CREATE_TOPICS_VERSION, client.read_frame())
        check(response.topics[0].error_code, f"creating topic {topic}")
        times.append(time.perf_counter())

    thread = threading.Timer(BEFORE_S, create)
    thread.start()
    acks: list[Ack] = []
    while thread.is_alive():
        acks += pace_each([producer], [frame], reply, RATE, BEFORE_S / 2)[0][0]
    began, ended = times  # there is only one if the creation failed
    running.wait_in_sync(topic, _replicas(partitions))
    delete_topic(client, topic)
    return [ack.latency for ack in acks if began <= ack.sent <= ended]


def _isr_changes(running: Cluster, client: RawClient, partitions: int) -> Figures:
    topic = "isr"
    running.create_topic(topic, [WHOLE] * partitions)
    # The czxid of the broker's registration is its epoch; the version of a new partition's state is 0.
    broker_epoch = running.tree.get(f"/brokers/ids/{LEADER}")[1].czxid
    shrink = [isr_request(LEADER, broker_epoch, topic, [IsrChange(at, 0, 0, SHRUNK)]) for at in range(partitions)]
    expand = [
        isr_request(
            LEADER,
            broker_epoch,
            topic,
            [IsrChange(at, 0, 1, WHOLE) for at in range(first, min(first + GATHERED, partitions))],
        )
        for first in range(0, partitions, GATHERED)
    ]
    return {
        "controller.isr.single": _seconds(lambda: _ask_all(client, shrink)) * 1000 / partitions,
        "controller.isr.gathered": _seconds(lambda: _ask_all(client, expand)) * 1000 / partitions,
    }


def _ask_all(client: RawClient, requests: Sequence[object]) -> None:
    for request in requests:
        answer = client.ask(ALTER_PARTITION, ISR_VERSION, request)
        check(answer.error_code, "changing ISRs")
        for partition in answer.topics[0].partitions:
            check(partition.error_code, f"changing the ISR of partition {partition.partition_index}")
