"""Consumers with incremental fetch sessions of many partitions, one of which gets a new record at a time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from kafkapy.protocol.apis import FETCH
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.many import ask_all
from perf.measurement import Bench, Figures, Measurement, Row
from perf.raw_client import RawClient, check

TOPIC = "sessions"
VERSION = 11
MOST_PARTITIONS = 1000
FETCHES_SHARE = 100  # of the scale's requests

EMPTY = ("fetch_sessions.empty", "fetch of a session without new records, broker CPU", "us", "partitions per session")
NEWS = ("fetch_sessions.news", "record to a waiting session, broker CPU", "us", "partitions per session")
CONSUMERS = ("fetch_sessions.consumers", "record to all waiting sessions, broker CPU per session", "us", "sessions")


class FetchSessions(Measurement):
    name = "fetch_sessions"
    quick = False  # the many sizes take too long
    about = "fetch sessions of 1 to 1,000 partitions, and 1 to 100 of the largest: empty and waiting fetches"
    rows = (
        Row("fetch_sessions.empty", "fetch without new records, largest session, CPU", "us", "lower"),
        Row("fetch_sessions.news", "record to the waiting largest session, CPU", "us", "lower"),
        Row("fetch_sessions.consumers", "record to many such sessions, CPU per session", "us", "lower"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        most, fetches = min(MOST_PARTITIONS, bench.scale.most), bench.scale.requests // FETCHES_SHARE
        with bench.broker(kind) as broker:
            for size in bench.scale.sizes(most):
                topic = f"{TOPIC}-{size}"
                with RawClient(broker.port) as client:
                    client.create_topic(topic, size)
                found["fetch_sessions.empty"] = _measure(broker, topic, size, 1, fetches, waiting=False)
                found["fetch_sessions.news"] = _measure(broker, topic, size, 1, fetches, waiting=True)
                bench.point(EMPTY, kind, size, found["fetch_sessions.empty"])
                bench.point(NEWS, kind, size, found["fetch_sessions.news"])
            for sessions in bench.scale.sizes(max(bench.scale.most // 100, 2)):
                cost = _measure(broker, f"{TOPIC}-{most}", most, sessions, fetches, waiting=True)
                found["fetch_sessions.consumers"] = cost
                bench.point(CONSUMERS, kind, sessions, cost)
        return found


class Session:
    """A consumer of all partitions of a topic, from the ends of the partitions."""

    def __init__(self, port: int, topic: str, partitions: int) -> None:
        self.client = RawClient(port)
        self._topic = topic
        self._ends = [0] * partitions
        self._id = self._epoch = 0
        self.moved: list[int] = []  # the partitions whose new offsets the next request must contain
        self.ask(range(partitions), 0)
        while self.take():
            self.ask(self.moved, 0)

    def _request(self, partitions: Iterable[int], wait_ms: int) -> bytes:
        make = FETCH.Request
        asked = [
            make.Topics.Partitions(partition=index, fetch_offset=self._ends[index], partition_max_bytes=1 << 20)
            for index in partitions
        ]
        message = make(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[make.Topics(topic=self._topic, partitions=asked)] if asked else [],
        )
        return request_frame(FETCH, VERSION, 1, frames.CLIENT, message)

    def ask(self, partitions: Iterable[int], wait_ms: int) -> None:
        self.client.socket.sendall(self._request(partitions, wait_ms))

    def take(self) -> int:
        """Read the response, move the session past its records, and return the number of partitions with records."""
        answer = self.client.decode(FETCH, VERSION, self.client.read_frame())
        check(answer.error_code, "a fetch in a session")
        self._id, self._epoch = answer.session_id, self._epoch + 1
        self.moved = []
        for topic in answer.responses:
            for one in topic.partitions:
                check(one.error_code, "a fetch in a session")
                if one.records:
                    self._ends[one.partition_index] = one.high_watermark
                    self.moved.append(one.partition_index)
        return len(self.moved)


def _measure(broker: Broker, topic: str, partitions: int, sessions: int, fetches: int, *, waiting: bool) -> float:
    """Return the microseconds of broker CPU per fetch."""
    records = frames.batch(frames.plain_values(100, 1))
    rounds = max(fetches // sessions, 5)
    with ExitStack() as ending, RawClient(broker.port) as producer:
        all_of_them = [Session(broker.port, topic, partitions) for _ in range(sessions)]
        for one in all_of_them:
            ending.callback(one.client.socket.close)
        every = [frames.produce(topic, records, 1, number % partitions) for number in range(rounds)]
        with used(broker.pid) as usage:
            for frame in every:
                for one in all_of_them:
                    one.ask(one.moved, 30_000 if waiting else 0)
                if waiting:
                    for _ in ask_all(producer, [frame]):
                        pass
                for one in all_of_them:
                    one.take()
    return usage.cpu / (rounds * sessions) * 1e6
