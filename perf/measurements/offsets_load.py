"""The time that a coordinator takes to load a million offsets at a start, and the memory that they take."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from perf.closed_loop import closed_loop
from perf.cpu import resident_bytes
from perf.measurement import MIB, Bench, Figures, Goal, Measurement, Row
from perf.offsets import commit, commit_once, committed, find_coordinator
from perf.raw_client import RawClient, Refused

TOPIC = "loaded"
PARTITIONS = 100
OFFSET = 777
# One partition with one segment, so that exactly the written records are loaded.
SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 30),
}


class OffsetsLoad(Measurement):
    name = "offsets_load"
    about = "load of a million committed offsets: 10,000 groups with 100 partitions each; memory of 100,000 groups"
    rows = (
        Row("offsets_load.seconds", "load of 1 M offsets", "s", "lower", Goal(1 / 1.5), digits=3),
        Row("offsets_load.first", "process start to the first fetched offset of 1 M", "s", "lower", digits=3),
        Row("offsets_load.memory", "resident memory after the load", "MiB", "lower"),
        Row("offsets_load.groups", "resident memory after the load of 100,000 groups, one offset each", "MiB", "lower"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        groups = max(bench.scale.requests // 10, 1)
        share = groups * PARTITIONS / 1_000_000
        seconds, first, memory = _load(bench, kind, groups, PARTITIONS)
        *_, of_groups = _load(bench, kind, bench.scale.requests, 1)
        if share < 1:
            text = f"{share * 1_000_000:,.0f} loaded, the time is for 1 M; {bench.scale.requests:,} groups"
            bench.note("offsets_load", f"load of offsets: {text}")
        return {
            "offsets_load.seconds": seconds / share,
            "offsets_load.first": first,
            "offsets_load.memory": memory / MIB,
            "offsets_load.groups": of_groups / MIB,
        }


def _load(bench: Bench, kind: str, number: int, partitions: int) -> tuple[float, float, int]:
    """Commit offsets of this number of groups, and start the broker again. Return the seconds of the load, the seconds
    until the first offset was fetched, and the resident memory in bytes."""
    groups = [f"group-{index:06}" for index in range(number)]
    with bench.data() as path:
        with bench.fleet.running(kind, path, SETTINGS) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC, partitions)
            find_coordinator(client, groups[0])
            for group in groups:
                frame = commit(group, TOPIC, partitions, OFFSET)
                if group == groups[0]:
                    reply = commit_once(client, frame)
                closed_loop([client], [frame], 1, [reply])
        with bench.fleet.running(kind, path, SETTINGS) as broker, RawClient(broker.port) as client:
            for group in (groups[0], groups[-1]):
                if committed(client, group, TOPIC, partitions) != [OFFSET] * partitions:
                    raise Refused(f"the offsets of {group} differ from the committed ones")
            first = time.perf_counter() - broker.began
            memory = resident_bytes(broker.pid)
        output = broker.child.output()  # after the stop: the line may come after the first fetch
    return _seconds(kind, output, first), first, memory


def _seconds(kind: str, output: str, most: float) -> float:
    """Return the time of the load in the broker's log, in seconds; `most` if kafkapy does not log it, because the load
    was short."""
    if kind == "kafka":
        found = re.search(r"Finished loading offsets .* from __consumer_offsets-0 in (\d+) milliseconds", output)
        if found is None:
            raise Refused("Apache Kafka does not say how long the load took")
        return float(found[1]) / 1000
    found = re.search(r"loaded .*shard=__consumer_offsets-0 .*seconds=([\d.]+)", output)
    return most if found is None else float(found[1])
