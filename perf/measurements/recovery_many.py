"""The time of a start after an unclean stop with many partitions, whose records must all be checked.

As in `recovery`, the brokers are stopped cleanly, and then the marks of the clean stop are deleted.
"""

from __future__ import annotations

from perf import frames
from perf.many import ask_all
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.partitions import STOP_TIMEOUT_S, until_led
from perf.measurements.recovery import make_unclean
from perf.raw_client import RawClient

TOPIC = "recovery-many"
SIZE = 1024
IN_BATCH = 64  # records
MOST = 1000  # partitions
SEGMENTS = 10  # how many times the scale's bytes of a segment are written


class RecoveryMany(Measurement):
    name = "recovery_many"
    quick = False  # writes gigabytes
    about = "start on 10 GiB in 1,000 partitions after an unclean stop, mostly in the page cache"
    rows = (
        Row(
            "recovery_many.seconds",
            "unclean start, 10 GiB in 1,000 partitions, until all have a leader",
            "s",
            "lower",
            Goal(1),
            digits=2,
        ),
        Row("recovery_many.cpu", "broker CPU of that start", "s", "lower", digits=2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        count = min(MOST, bench.scale.most)
        records = frames.batch(frames.plain_values(SIZE, IN_BATCH))
        every = [frames.produce(TOPIC, records, 1, index) for index in range(count)]
        rounds = max(1, SEGMENTS * bench.scale.segment // (count * len(records)))
        with bench.data() as path:
            with bench.fleet.running(kind, path) as broker:
                with RawClient(broker.port) as client:
                    client.create_topic(TOPIC, count)
                    for _ in range(rounds):
                        for _ in ask_all(client, every):
                            pass
                broker.child.stop(STOP_TIMEOUT_S)
            make_unclean(path / "logs")
            with bench.fleet.running(kind, path) as broker:
                seconds, cpu = until_led(broker, [TOPIC])
        written = rounds * count * len(records)
        bench.note("recovery_many", f"recovery_many: {written:,} bytes in {count:,} partitions")
        return {"recovery_many.seconds": seconds, "recovery_many.cpu": cpu}
