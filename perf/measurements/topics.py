"""Creating and deleting topics, one after the other, while more and more other topics exist."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.protocol.apis import CREATE_TOPICS
from perf.admin import delete_topic
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import Bench, Figures, Measurement, Row
from perf.raw_client import CREATE_TOPICS_VERSION, RawClient, check

MOST = 1000  # more topics take minutes to create
MEASURED = 50
TOGETHER = 200

CREATE = ("topics.create", "creating a topic of one partition, broker CPU", "ms", "topics")
DELETE = ("topics.delete", "deleting a topic of one partition, broker CPU", "ms", "topics")


class Topics(Measurement):
    name = "topics"
    kafka_4 = True
    quick = False  # the many sizes take too long
    about = "topics of one partition created and deleted per second, with up to 1,000 others"
    rows = (
        Row("topics.create", "topics created one after the other", "/s", "higher"),
        Row("topics.delete", "topics deleted one after the other", "/s", "higher"),
        Row("topics.create_cpu", "creating a topic, CPU", "ms", "lower", digits=2),
        Row("topics.delete_cpu", "deleting a topic, CPU", "ms", "lower", digits=2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic("first")
            there = 0
            for size in bench.scale.sizes(min(bench.scale.most, MOST)):
                _keep(client, range(there, size))
                there = max(there, size)
                found = _made_and_deleted(broker, client, min(MEASURED, bench.scale.most))
                bench.point(CREATE, kind, size, found["topics.create_cpu"])
                bench.point(DELETE, kind, size, found["topics.delete_cpu"])
        return found


def _keep(client: RawClient, numbers: Sequence[int]) -> None:
    """Create the topics that stay, many per request."""
    make = CREATE_TOPICS.Request
    for at in range(0, len(numbers), TOGETHER):
        names = [f"kept-{number}" for number in numbers[at : at + TOGETHER]]
        topics = [make.Topics(name=name, num_partitions=1, replication_factor=1) for name in names]
        answer = client.ask(CREATE_TOPICS, CREATE_TOPICS_VERSION, make(topics=topics, timeout_ms=30_000))
        for one in answer.topics:
            check(one.error_code, f"creating topic {one.name}")
        client.wait_for_topic(names[-1], create=False)


def _made_and_deleted(broker: Broker, client: RawClient, count: int) -> Figures:
    names = [f"passing-{number}" for number in range(count)]
    with used(broker.pid) as making:
        for name in names:
            client.create_topic(name)
    with used(broker.pid) as deleting:
        for name in names:
            delete_topic(client, name)
    return {
        "topics.create": count / making.wall,
        "topics.delete": count / deleting.wall,
        "topics.create_cpu": making.cpu / count * 1e3,
        "topics.delete_cpu": deleting.cpu / count * 1e3,
    }
