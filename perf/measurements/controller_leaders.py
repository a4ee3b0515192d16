"""How long partitions have no leader: after SIGKILL of the broker that leads them, and during its controlled shutdown.

Each partition has replicas on all three brokers. Broker 3, which is not the controller, leads them. The time after
SIGKILL begins when the broker's registration in ZooKeeper is removed, so the session time-out is not part of it. It
ends, for each partition, with the first ack (acks=1) of the next leader; the client sends again and again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kafkapy.protocol.apis import PRODUCE
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.following_producer import FollowingProducer
from perf.many import wait_for
from perf.measurement import FULL, Bench, Figures, Goal, Measurement, Row
from perf.one_kind import Cluster, cluster
from perf.raw_client import TIMEOUT, RawClient, Refused
from perf.stats import percentile

VICTIM = 3
REPLICAS = [(VICTIM, 1, 2), (VICTIM, 2, 1)]  # in turn; the second one leads next
KILLS = 3  # with one partition
TOGETHER = 50  # partitions in one request
SIZE = 100
WARM = 500  # requests
PRODUCED_TO = 8  # partitions during the controlled shutdown
BESIDE_S = 1.0  # how long the producer begins before the shutdown, and how long it continues afterwards
ONE, MANY = "one", "many"


class ControllerLeaders(Measurement):
    name = "controller_leaders"
    quick = False
    about = "SIGKILL and controlled shutdown of a broker that leads 1 or 1,000 partitions: time without leader"
    rows = (
        *(
            Row(f"controller.kill.{key}.{share}", f"leader killed, {words}, first ack, {share}", "ms", "lower", Goal(1))
            for key, words in {ONE: "1 partition", MANY: "1,000 partitions"}.items()
            for share in ("p50", "max")
        ),
        Row("controller.shutdown", "controlled shutdown, 1,000 partitions led", "s", "lower", Goal(0.5), digits=2),
        Row("controller.shutdown.gap", "longest gap of acks=all meanwhile", "ms", "lower", Goal(0.5), digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        many = max(2, bench.scale.most // 10)
        found: Figures = {}
        with cluster(bench, kind) as running:
            _warm(running)
            running.create_topic(ONE, REPLICAS[:1])
            waits: list[float] = []
            for _ in range(KILLS if bench.scale.name == FULL.name else 1):
                waits += _waits_after_kill(running, ONE, 1)
                _restart(running, ONE, 1)
            found |= _figures(ONE, waits)
            running.create_topic(MANY, replicas_of(many))
            found |= _figures(MANY, _waits_after_kill(running, MANY, many))
            _restart(running, MANY, many)
            found |= _shutdown(running, many)
        return found


def replicas_of(partitions: int) -> list[tuple[int, ...]]:
    return [REPLICAS[partition % len(REPLICAS)] for partition in range(partitions)]


def _figures(key: str, waits: list[float]) -> Figures:
    waits.sort()
    return {f"controller.kill.{key}.p50": percentile(waits, 0.5) * 1e3, f"controller.kill.{key}.max": waits[-1] * 1e3}


def _warm(running: Cluster) -> None:
    """Have both next leaders handle produce requests, so that a JVM has compiled that."""
    running.create_topic("warm", [(1, 2, 3), (2, 1, 3)])
    records = frames.batch(frames.plain_values(SIZE, 1))
    for partition, leader in enumerate((1, 2)):
        with running.client(leader) as client:
            client.stream(frames.produce("warm", records, 1, partition), WARM, 1)


def _waits_after_kill(running: Cluster, topic: str, partitions: int) -> list[float]:
    """Kill the leader; return the seconds until the first ack of each partition."""
    asked = {
        leader: [index for index, ids in enumerate(replicas_of(partitions)) if ids[1] == leader] for leader in (1, 2)
    }
    requests = {leader: _requests(topic, indexes) for leader, indexes in asked.items()}
    with running.client(1) as one, running.client(2) as two, running.removal(f"/brokers/ids/{VICTIM}") as removal:
        running.kill(VICTIM)
        began = removal.wait()
        acks = _first_acks({1: one, 2: two}, requests)
    return [ack - began for ack in acks]


def _requests(topic: str, partitions: Sequence[int]) -> list[bytes]:
    """Return produce requests with one record for each partition, and TOGETHER partitions in a request."""
    request = PRODUCE.Request
    records = frames.batch(frames.plain_values(SIZE, 1))
    found = []
    for at in range(0, len(partitions), TOGETHER):
        some = [request.TopicData.PartitionData(index=one, records=records) for one in partitions[at : at + TOGETHER]]
        topics = [request.TopicData(name=topic, partition_data=some)]
        message = request(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=topics)
        found.append(request_frame(PRODUCE, frames.PRODUCE_VERSION, 1, frames.CLIENT, message))
    return found


def _first_acks(clients: Mapping[int, RawClient], requests: Mapping[int, Sequence[bytes]]) -> list[float]:
    """Send the requests of each client until all their partitions are acknowledged; return the perf_counter of the
    first ack of each partition."""
    deadline = time.monotonic() + TIMEOUT
    acks: dict[int, float] = {}
    left = {number: [*frames_of] for number, frames_of in requests.items()}
    while any(left.values()):
        for number, waiting in left.items():
            if not waiting:
                continue
            client, frame = clients[number], waiting.pop(0)
            client.socket.sendall(frame)
            answer = client.decode(PRODUCE, frames.PRODUCE_VERSION, client.read_frame())
            now = time.perf_counter()
            complete = True
            for one in answer.responses[0].partition_responses:
                if one.error_code:
                    complete = False
                else:
                    acks.setdefault(one.index, now)
            if not complete:
                waiting.append(frame)
        if time.monotonic() > deadline:
            raise Refused(f"partitions have no leader after {TIMEOUT:.0f} s")
    return list(acks.values())


def _restart(running: Cluster, topic: str, partitions: int) -> None:
    """Start the broker again, and have it lead the partitions again."""
    running.start(VICTIM)
    running.wait_in_sync(topic, replicas_of(partitions))
    running.elect_preferred_leaders(topic, replicas_of(partitions))


def _shutdown(running: Cluster, partitions: int) -> Figures:
    ports = {number: broker.port for number, broker in running.brokers.items()}
    step = max(1, partitions // PRODUCED_TO)
    with FollowingProducer(ports, MANY, range(0, partitions, step)) as producer:
        wait_for(lambda: all(producer.acks.values()), "no acks")
        time.sleep(BESIDE_S)
        began = time.perf_counter()
        running.stop(VICTIM)
        seconds = time.perf_counter() - began
        time.sleep(BESIDE_S)
        ended = time.perf_counter()
        wait_for(lambda: all(acks[-1] > ended for acks in producer.acks.values()), "no acks after the shutdown")
    return {"controller.shutdown": seconds, "controller.shutdown.gap": producer.longest_gap(began) * 1e3}
