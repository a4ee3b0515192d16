"""A producer that follows the leaders of its partitions, one request at a time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence

from kafkapy.protocol.apis import PRODUCE
from perf import frames
from perf.raw_client import RawClient

PAUSE_S = 0.002


class FollowingProducer:
    """Produces to some partitions in turn with acks=all while the block runs, and looks up the leader after an error.

    `ports`: broker id -> port; the first one, which must run all the time, is asked for the leaders.
    `acks`: partition -> the perf_counter of each ack.
    """

    def __init__(self, ports: Mapping[int, int], topic: str, partitions: Sequence[int], size: int = 100) -> None:
        records = frames.batch(frames.plain_values(size, 1))
        self._ports = ports
        self._topic = topic
        self._frames = {each: frames.produce(topic, records, frames.ACKS_ALL, each) for each in partitions}
        self.acks: dict[int, list[float]] = {each: [] for each in partitions}
        self._clients: dict[int, RawClient] = {}
        self._leaders: Sequence[int] = ()
        self._ended = threading.Event()
        self._ended_at = 0.0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FollowingProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended_at = time.perf_counter()
        self._ended.set()
        self._thread.join()
        for client in self._clients.values():
            client.socket.close()
        if self._error is not None:
            raise self._error

    def longest_gap(self, since: float) -> float:
        """Return the longest time without an ack of one partition after the perf_counter `since`, in seconds. Call it
        after the block."""
        return max(
            later - ack
            for acks in self.acks.values()
            for ack, later in itertools.pairwise([*acks, self._ended_at])
            if later > since
        )

    def _run(self) -> None:
        try:
            first = next(iter(self._ports))
            while not self._ended.is_set():
                if not self._leaders:
                    self._leaders = self._client(first).leaders(self._topic)
                for partition in self._frames:
                    if not self._produce(partition):
                        self._leaders = ()
                        break
                time.sleep(PAUSE_S)
        except BaseException as error:
            self._error = error

    def _produce(self, partition: int) -> bool:
        """Produce one record; return True if it was acknowledged."""
        leader = self._leaders[partition]
        if leader not in self._ports:
            return False
        try:
            client = self._client(leader)
            client.socket.sendall(self._frames[partition])
            answer = client.decode(PRODUCE, frames.PRODUCE_VERSION, client.read_frame())
        except OSError:
            if leader in self._clients:
                self._clients.pop(leader).socket.close()
            return False
        if answer.responses[0].partition_responses[0].error_code:
            return False
        self.acks[partition].append(time.perf_counter())
        return True

    def _client(self, number: int) -> RawClient:
        if number not in self._clients:
            self._clients[number] = RawClient(self._ports[number])
        return self._clients[number]
