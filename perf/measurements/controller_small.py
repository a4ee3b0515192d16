"""Small requests to one broker and to two, on the same two cores: what a second broker adds, and costs.

One record per request, acks=1, 64 connections with one request in flight each, to two partitions: both led by the first
broker, or one by each. The client, one thread, shares the cores with the brokers.
"""

from __future__ import annotations

from contextlib import ExitStack

from perf import frames
from perf.closed_loop import closed_loop
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.one_kind import Cluster, cluster

CONNECTIONS = 64
SIZE = 100
LEADERS = {1: (1, 1), 2: (1, 2)}  # number of brokers -> leaders of both partitions


class ControllerSmall(Measurement):
    name = "controller_small"
    quick = False
    about = f"one record of {SIZE} B per request on {CONNECTIONS} connections, to one broker and to two"
    rows = (
        *(
            row
            for count, words in {1: "1 broker", 2: "2 brokers"}.items()
            for row in (
                Row(f"controller.small.{count}.rate", f"{CONNECTIONS} connections to {words}", "requests/s", "higher"),
                Row(f"controller.small.{count}.cpu", f"broker CPU per 100,000, {words}", "s", "lower", digits=2),
            )
        ),
        Row("controller.small.times", "broker CPU with 2 brokers / with 1", "x", "lower", Goal(1.25, None), 2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with cluster(bench, kind, (1, 2)) as running:
            for count, leaders in LEADERS.items():
                rate, cpu = _produce(bench, running, f"small-{count}", leaders)
                found |= {f"controller.small.{count}.rate": rate, f"controller.small.{count}.cpu": cpu}
        return found | {"controller.small.times": found["controller.small.2.cpu"] / found["controller.small.1.cpu"]}


def _produce(bench: Bench, running: Cluster, topic: str, leaders: tuple[int, ...]) -> tuple[float, float]:
    """Return the requests per second, and the CPU seconds of the leaders per 100,000 requests."""
    running.create_topic(topic, [[leader] for leader in leaders])
    records = frames.batch(frames.plain_values(SIZE, 1))
    requests = max(32 * CONNECTIONS, bench.scale.requests)
    each = [frames.produce(topic, records, 1, partition) for partition in range(len(leaders))]
    with ExitStack() as ending:
        turns = [number % len(leaders) for number in range(CONNECTIONS)]
        clients = [ending.enter_context(running.client(leaders[turn])) for turn in turns]
        many = [each[turn] for turn in turns]
        closed_loop(clients, many, max(CONNECTIONS, requests // 2))
        with used(*(running.brokers[leader].pid for leader in set(leaders))) as usage:
            seconds, _ = closed_loop(clients, many, requests)
    return requests / seconds, usage.cpu / requests * 1e5
