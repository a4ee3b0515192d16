"""Transactions of ten records each, from one producer and from several."""

from __future__ import annotations

from perf import frames
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused
from perf.transactions import Producer, run

SIZE = 100
RECORDS = 10
PRODUCERS = (1, 8)
TOPIC = "transactions"
SETTINGS = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


class Transactions(Measurement):
    name = "transactions"
    kafka_4 = True
    about = f"transactions of {RECORDS} records of {SIZE} B in one partition, 1 and 8 producers, raw client"
    rows = tuple(
        row
        for count in PRODUCERS
        for row in (
            Row(f"transactions.{count}.rate", f"transactions, producers: {count}", "/s", "higher", Goal(1.5)),
            Row(
                f"transactions.{count}.cpu",
                f"broker CPU per 1,000 transactions, producers: {count}",
                "s",
                "lower",
                digits=3,
            ),
        )
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind, SETTINGS) as broker, RawClient(broker.port) as client:
            values = frames.plain_values(SIZE, RECORDS)
            for count in PRODUCERS:
                topic = f"{TOPIC}-{count}"
                client.create_topic(topic, count)
                producers = [
                    Producer(broker.port, f"{topic}-{number}", topic, number, values) for number in range(count)
                ]
                each = max(bench.scale.requests // 40 // count, 1)
                warm = max(each // 2, 1)
                run(producers, warm)
                with used(broker.pid) as usage:
                    seconds = run(producers, each)
                end = client.end_offset(topic)
                if end < (warm + each) * (RECORDS + 1) - 1:  # the last marker may not be written yet
                    raise Refused(f"{topic} ends at {end} after {warm + each} transactions per producer")
                repeated = sum(producer.repeated for producer in producers)
                bench.note(
                    f"transactions.{count}.{kind}",
                    f"transactions, producers: {count}: {kind} returned CONCURRENT_TRANSACTIONS "
                    f"{repeated / (warm + each) / count:.2f} times per transaction",
                )
                for producer in producers:
                    producer.client.socket.close()
                found[f"transactions.{count}.rate"] = each * count / seconds
                found[f"transactions.{count}.cpu"] = usage.cpu * 1000 / (each * count)
        return found
