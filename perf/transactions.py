"""Transactional producers in one thread, each with its own connection, topic partition and transactional id.

A producer sends the requests of a client: AddPartitionsToTxn, Produce with one batch, EndTxn, each after the response
to the previous one. After CONCURRENT_TRANSACTIONS (the coordinator is still completing the previous transaction) it
retries after a millisecond. Clients wait 20 ms or longer, which would hide how fast the coordinator is.
"""

from __future__ import annotations

import select
import struct
import time
from typing import Any

from kafkapy._ext.crc32c import crc32c
from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
)
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.record.batch import build
from perf import frames
from perf.raw_client import TIMEOUT, RawClient, Refused, check

ADD_VERSION, END_VERSION, INIT_VERSION, FIND_VERSION = 3, 3, 4, 4
TRANSACTION = 1
AGAIN_S = 0.001
NOT_YET = (
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.NOT_COORDINATOR,
    Errors.CONCURRENT_TRANSACTIONS,
)

_CRC_AT, _COVERED_FROM, _SEQUENCE_AT = 17, 21, 53  # in a record batch
_Step = tuple[Any, int, bytes]  # API, version, frame


class Producer:
    """One producer; call `send` and `receive` in turn."""

    def __init__(self, port: int, transactional_id: str, topic: str, index: int, values: list[bytes]) -> None:
        self.client = RawClient(port)
        self.done = 0
        self.repeated = 0
        self._records = len(values)
        self._sequence = 0
        self._next = 0
        self._sent: _Step
        producer_id, epoch = self._init(transactional_id)
        add = ADD_PARTITIONS_TO_TXN.Request
        self._add: _Step = _step(
            ADD_PARTITIONS_TO_TXN,
            ADD_VERSION,
            add(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[add.V3AndBelowTopics(name=topic, partitions=[index])],
            ),
        )
        self._end: _Step = _step(
            END_TXN,
            END_VERSION,
            END_TXN.Request(
                transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
            ),
        )
        self._batch = bytearray(_batch(values, producer_id, epoch))
        frame = _produce(transactional_id, topic, index, self._batch)
        self._produce = bytearray(frame)
        self._batch_at = frame.index(bytes(self._batch))
        self._steps = (lambda: self._add, self._produced, lambda: self._end)

    def _init(self, transactional_id: str) -> tuple[int, int]:
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self.client.ask(
                FIND_COORDINATOR,
                FIND_VERSION,
                FIND_COORDINATOR.Request(key_type=TRANSACTION, coordinator_keys=[transactional_id]),
            )
            code = found.coordinators[0].error_code
            if not code:
                request = INIT_PRODUCER_ID.Request(transactional_id=transactional_id, transaction_timeout_ms=60_000)
                answer = self.client.ask(INIT_PRODUCER_ID, INIT_VERSION, request)
                code = answer.error_code
                if not code:
                    return answer.producer_id, answer.producer_epoch
            if code not in NOT_YET or time.monotonic() > deadline:
                check(code, f"the producer id of {transactional_id}")
            time.sleep(0.02)

    def _produced(self) -> _Step:
        """Return the produce request with the next sequence number."""
        struct.pack_into(">i", self._batch, _SEQUENCE_AT, self._sequence)
        struct.pack_into(">I", self._batch, _CRC_AT, crc32c(memoryview(self._batch)[_COVERED_FROM:]))
        self._produce[self._batch_at : self._batch_at + len(self._batch)] = self._batch
        self._sequence += self._records
        return PRODUCE, frames.PRODUCE_VERSION, bytes(self._produce)

    def send(self) -> None:
        """Send the next request."""
        self._sent = self._steps[self._next]()
        self.client.socket.sendall(self._sent[2])

    def send_again(self) -> None:
        self.repeated += 1
        self.client.socket.sendall(self._sent[2])

    def receive(self) -> bool:
        """Read the response; return False if the request must be sent again. Raise Refused for an error."""
        api, version, _ = self._sent
        frame = self.client.read_frame()
        _, body = read_response_header(frame, api, version)
        code = _code(api, api.decode_response(frame, version, body))
        if code in NOT_YET:
            return False
        check(code, api.name)
        self._next = (self._next + 1) % len(self._steps)
        self.done += self._next == 0
        return True


def run(producers: list[Producer], count: int) -> float:
    """Let each producer do `count` transactions; return the seconds. No transaction is open before and after."""
    by_descriptor = {producer.client.socket.fileno(): producer for producer in producers}
    goal = {descriptor: producer.done + count for descriptor, producer in by_descriptor.items()}
    poll = select.poll()
    again: list[tuple[float, Producer]] = []
    began = time.perf_counter()
    for descriptor, producer in by_descriptor.items():
        poll.register(descriptor, select.POLLIN)
        producer.send()
    left = len(producers)
    while left:
        while again and again[0][0] <= time.perf_counter():
            again.pop(0)[1].send_again()
        ready = poll.poll(1 if again else TIMEOUT * 1000)
        if not ready and not again:
            raise Refused(f"no response for {TIMEOUT:.0f} s")
        for descriptor, _ in ready:
            producer = by_descriptor[descriptor]
            if not producer.receive():
                again.append((time.perf_counter() + AGAIN_S, producer))
            elif producer.done == goal[descriptor]:
                left -= 1
            else:
                producer.send()
    return time.perf_counter() - began


def _step(api: Any, version: int, message: Any) -> _Step:
    return api, version, request_frame(api, version, 1, frames.CLIENT, message)


def _batch(values: list[bytes], producer_id: int, epoch: int) -> bytes:
    now = int(time.time() * 1000)
    return build(
        [(now, None, value, []) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def _produce(transactional_id: str, topic: str, index: int, batch: bytes | bytearray) -> bytes:
    request = PRODUCE.Request
    partition = request.TopicData.PartitionData(index=index, records=bytes(batch))
    message = request(
        transactional_id=transactional_id,
        acks=frames.ACKS_ALL,
        timeout_ms=30_000,
        topic_data=[request.TopicData(name=topic, partition_data=[partition])],
    )
    return request_frame(PRODUCE, frames.PRODUCE_VERSION, 1, frames.CLIENT, message)


def _code(api: Any, answer: Any) -> int:
    if api is END_TXN:
        return int(answer.error_code)
    if api is PRODUCE:
        return int(answer.responses[0].partition_responses[0].error_code)
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
