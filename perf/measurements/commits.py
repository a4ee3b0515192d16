"""Committed offsets: the rate and the latency of commits from 1, 10 and 100 consumers.

All commits that one turn of the network thread handles for a partition of `__consumer_offsets` become one append. That
saves a sixth of the broker's CPU time with 10 and 100 consumers in as many groups, which are in 50 partitions, and half
of it with 100 consumers in one group. Handling one commit alone takes about 35 us, one of 10 in a turn 25, one of 64 in
a turn 20: 2 to 4 for decoding the request, 2 for making records and encoding the response, 12 for an append, and the
rest in between. Receive, send and the loop come on top.
One network thread does all of it. A commit takes Apache Kafka 45 to 130 us, less the longer it has run, but on both
cores, so Apache Kafka is faster with many consumers.
"""

from __future__ import annotations

from perf import shares
from perf.closed_loop import closed_loop
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.offsets import commit, commit_once, committed, find_coordinator
from perf.raw_client import RawClient, Refused
from perf.stats import percentile

CONSUMERS = (1, 10, 100)
PARTITIONS = 5
TOPIC = "commits"


def _rows(count: int) -> tuple[Row, ...]:
    who = f"consumers: {count}"
    return (
        Row(f"commits.{count}.rate", f"commits, {who}", "/s", "higher", Goal(1.5), client=f"commits.{count}.busiest"),
        Row(f"commits.{count}.p99", f"p99 of a commit, {who}", "ms", "lower", Goal(1 / 1.5), digits=3),
        Row(f"commits.{count}.cpu", f"broker CPU per 1,000 commits, {who}", "s", "lower", digits=3),
        shares.busiest(f"commits.{count}", f"commits, {who}"),
    )


class Commits(Measurement):
    name = "commits"
    kafka_4 = True
    about = (
        f"commits of {PARTITIONS} partitions, 1, 10 and 100 consumers in as many groups, one in flight each, raw client"
    )
    rows = tuple(row for count in CONSUMERS for row in _rows(count))

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC, PARTITIONS)
            find_coordinator(client, "any")
            for count in CONSUMERS:
                groups = [f"group-{count}-{number}" for number in range(count)]
                clients = [RawClient(broker.port) for _ in groups]
                frames = [commit(group, TOPIC, PARTITIONS) for group in groups]
                replies = [commit_once(one, frame) for one, frame in zip(clients, frames, strict=True)]
                each = max(bench.scale.requests // 8, 2 * count)
                closed_loop(clients, frames, each // 2, replies)
                with used(broker.pid) as usage, shares.this_thread() as thread:
                    seconds, latencies = closed_loop(clients, frames, each, replies)
                for group in (groups[0], groups[-1]):
                    if committed(client, group, TOPIC, PARTITIONS) != [12345] * PARTITIONS:
                        raise Refused(f"the offsets of {group} differ from the committed ones")
                for one in clients:
                    one.socket.close()
                found[f"commits.{count}.rate"] = each / seconds
                found[f"commits.{count}.p99"] = percentile(sorted(latencies), 0.99) * 1000
                found[f"commits.{count}.cpu"] = usage.cpu * 1000 / each
                found[f"commits.{count}.busiest"] = thread.percent
        return found
