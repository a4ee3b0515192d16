"""Handles the five requests of Kafka 0.7. Implements `kafkapy.network.replies.Handler` for the listener of 0.7.

A request is handled on its connection's network thread, unless it would wait for a disk or takes long: then a pool
handles it, and the connection's next requests wait. As in 0.7.2, a Produce request gets no response, and a fault in it
closes the connection; a fault in a Fetch request becomes an error code.

Source: kafka.server.KafkaRequestHandlers and kafka.log.LogManager of Kafka 0.7.2.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kafkapy.errors import KafkaError
from kafkapy.log.log07.directory import LogDir07
from kafkapy.log.log07.log import EARLIEST, LATEST, Log07, OffsetOutOfRange
from kafkapy.log.log07.recovery import UnusableLog
from kafkapy.log.results import BUSY, Busy
from kafkapy.network.replies import CLOSE, NO_REPLY, Last, Part, Pending, Reply, Word
from kafkapy.record.sets_07 import CheckedSet, InvalidSet, MessageTooLarge, check_inner_sets, check_set
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.server.admission import denied_names
from kafkapy.server.api_table import TABLE
from kafkapy.server.call import Call
from kafkapy.server.kafka07.requests import (
    FETCH,
    MULTI_FETCH,
    MULTI_PRODUCE,
    NAMES,
    OFFSETS,
    PRODUCE,
    BadRequest,
    ProducePart,
    ReadPart,
    decode_request,
    encode_header,
    encode_offsets,
)
from kafkapy.server.kafka07.topics import IllegalTopic, check_topic

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.server.api_table import Served
    from kafkapy.server.config.kafka07 import Kafka07Config
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.kafka07")

NO_ERROR, UNKNOWN, OFFSET_OUT_OF_RANGE, WRONG_PARTITION = 0, -1, 1, 3
RANDOM_PARTITION = -1

LONG_SET = 1 << 20  # bytes of a set whose check takes too long for a network thread
MANY_PARTS = 64  # parts of a request, or of the responses that are collected before they are sent

# For the authorizer: the key of the modern API that stands for a request of 0.7, and the operation on its topics.
_LIKE = {PRODUCE: (0, "WRITE"), MULTI_PRODUCE: (0, "WRITE"), FETCH: (1, "READ"), MULTI_FETCH: (1, "READ"),
         OFFSETS: (2, "DESCRIBE")}  # fmt: skip


class WrongPartition(Exception):
    """Raised for a partition that a topic does not have."""


class Denied(Exception):
    """Raised for a topic on which the client has no permission."""


# Exceptions that are the fault of a request or of a disk, not of this program.
FAULTS = (BadRequest, IllegalTopic, WrongPartition, Denied, UnusableLog, InvalidSet, KafkaError, OSError, ValueError)


class Handler07:
    """Handles the requests of all connections to the listener of Kafka 0.7."""

    def __init__(self, services: Services, config: Kafka07Config, directory: LogDir07) -> None:
        self._services = services
        self._config = config
        self._directory = directory
        self._longest_topic = config["max.topic.name.length"]
        self._stall = StallMonitor(services.config.kafkapy_stall_threshold_ms / 1000)
        self._max_decompressed = services.config.kafkapy_decompressed_max_bytes
        self.requests = dict.fromkeys(NAMES, 0)  # by name; for metrics
        self.failed = dict.fromkeys(NAMES, 0)

    def prepare(self, connection: Connection) -> None:
        """Make this the handler of a new connection.

        As in 0.7, the connection is not closed when it is idle: a producer gets no responses, and would lose its next
        messages.
        """
        connection.handler = self
        connection.may_be_idle = True
        connection.largest_frame = self._config["max.socket.request.bytes"]
        for option, name in ((socket.SO_SNDBUF, "socket.send.buffer"), (socket.SO_RCVBUF, "socket.receive.buffer")):
            if self._config[name] > 0:
                connection.sock.setsockopt(socket.SOL_SOCKET, option, self._config[name])

    def handle(self, connection: Connection, frames: list[memoryview]) -> list[Reply]:
        """Return one reply per frame, in order. Stop after a reply that is pending or closes the connection, and when
        the responses have many parts."""
        replies: list[Reply] = []
        parts = 0
        for frame in frames:
            reply = self._handle(connection, frame)
            replies.append(reply)
            if reply is CLOSE or isinstance(reply, Pending | Last):
                break
            parts += len(reply) if isinstance(reply, list) else 0
            if parts > MANY_PARTS:
                break
        return replies

    def end_turn(self, gathered: Sequence[tuple[Connection, Any]]) -> Sequence[tuple[Connection, Sequence[Reply]]]:
        raise AssertionError("requests of Kafka 0.7 are not gathered")

    def _handle(self, connection: Connection, frame: memoryview) -> Reply:
        kind = -1
        try:
            kind, parts = decode_request(frame)
            self.requests[NAMES[kind]] += 1
            if kind in (PRODUCE, MULTI_PRODUCE):
                return self._produce(connection, kind, cast("list[ProducePart]", parts))
            reads = cast("list[ReadPart]", parts)
            if kind == OFFSETS:
                return self._offsets(connection, reads[0], blocking=False)
            return self._fetch(connection, kind, reads, blocking=False)
        except FAULTS as error:
            return self._refuse(connection, kind, error)

    def _later(self, connection: Connection, kind: int, pool: DiskPool, work: Callable[[], Reply]) -> Reply:
        """Have a pool thread, which may block, make the reply by `work()`. The frame of a Produce request stays in
        memory until then."""
        pending = Pending(connection)
        pending.keeps_buffer = kind in (PRODUCE, MULTI_PRODUCE)

        def run() -> None:
            try:
                reply = work()
            except FAULTS as error:
                reply = self._refuse(connection, kind, error)
            except BaseException:
                log.exception("%s of %s failed", NAMES[kind], connection.name)
                reply = CLOSE
            pending.complete(reply)

        try:
            pool.submit(run)
        except (NoThread, PoolStopped) as error:
            raise BadRequest(str(error)) from None
        return pending

    # --- Produce

    def _produce(self, connection: Connection, kind: int, parts: Sequence[ProducePart]) -> Reply:
        for number, part in enumerate(parts):
            if part.partition == RANDOM_PARTITION:
                part = part._replace(partition=self._directory.random_partition(part.topic))
            if self._append(connection, kind, part, blocking=False) is BUSY:
                rest = [part, *parts[number + 1 :]]
                return self._later(
                    connection, kind, self._services.append_pool, partial(self._append_all, connection, kind, rest)
                )
        return NO_REPLY

    def _append_all(self, connection: Connection, kind: int, parts: Sequence[ProducePart]) -> Word:
        for part in parts:
            if part.partition == RANDOM_PARTITION:
                part = part._replace(partition=self._directory.random_partition(part.topic))
            self._append(connection, kind, part, blocking=True)
        return NO_REPLY

    def _append(self, connection: Connection, kind: int, part: ProducePart, *, blocking: bool) -> Busy | None:
        """Append one message set. If not `blocking`, return BUSY, without a change, if the append takes long or would
        block.

        A set with a message that is too large is logged and dropped. Raises FAULTS.
        """
        topic = self._admit(connection, kind, part.topic, part.partition)
        log_07 = self._directory.get(topic, part.partition)
        if not blocking and (log_07 is None or len(part.data) > LONG_SET or self._stall.lasts()):
            return BUSY
        if log_07 is None:
            log_07 = self._directory.create(topic, part.partition)
        try:
            checked = check_set(part.data, log_07.settings.max_message)
            count = checked.messages
            if checked.compressed:
                if not blocking:
                    return BUSY
                count = check_inner_sets(part.data, checked, self._max_decompressed)
        except MessageTooLarge as error:
            self._warn(connection, kind, f"a set for {topic}-{part.partition} is dropped: {error}")
            return None
        return self._write(log_07, part.data, checked, count, blocking=blocking)

    def _write(
        self, log_07: Log07, data: memoryview, checked: CheckedSet, count: int, *, blocking: bool
    ) -> Busy | None:
        busy = log_07.append(data[: checked.size], count, blocking=blocking)
        if busy is None and not blocking and log_07.write_seconds > self._stall.threshold:
            self._stall.observe(log_07.write_seconds, checked.size)
        return busy

    # --- Fetch

    def _fetch(self, connection: Connection, kind: int, parts: Sequence[ReadPart], *, blocking: bool) -> Reply:
        if not blocking and len(parts) > MANY_PARTS:
            return self._fetch_later(connection, kind, parts)
        send: list[Part] = []
        sent: int | None = None  # how many parts are sent before the connection is closed
        total = faults = 0
        first = ""
        out: list[tuple[Log07, int]] = []
        try:
            for part in parts:
                code, size, found = NO_ERROR, 0, None
                try:
                    size, found = self._read(connection, kind, part, out, blocking=blocking)
                except OffsetOutOfRange as error:
                    code = OFFSET_OUT_OF_RANGE
                    log.debug("%s of %s: %s", NAMES[kind], connection.name, error)
                except BlockingIOError:
                    raise
                except FAULTS as error:
                    code = WRONG_PARTITION if isinstance(error, WrongPartition) else UNKNOWN
                    faults, first = faults + 1, first or str(error)
                send.append(encode_header(code, size))
                if found is not None:
                    send.append(found)
                if size < 0 and sent is None:  # 0.7.2 fails where it sends these bytes, after this header
                    sent = len(send)
                total += 6 + size
        except BlockingIOError:  # a file is not open
            return self._fetch_later(connection, kind, parts)
        for log_07, size in out:  # after all reads: if a file is not open, a pool repeats all of them
            log_07.bytes_out += size
        if faults:
            more = f", and {faults - 1} more faults" if faults > 1 else ""
            self._warn(connection, kind, first + more)
        head: list[Part] = [encode_header(NO_ERROR, total)] if kind == MULTI_FETCH else []
        return head + send if sent is None else Last(head + send[:sent])

    def _fetch_later(self, connection: Connection, kind: int, parts: Sequence[ReadPart]) -> Reply:
        work = partial(self._fetch, connection, kind, parts, blocking=True)
        return self._later(connection, kind, self._services.disk_pool, work)

    def _read(
        self, connection: Connection, kind: int, part: ReadPart, out: list[tuple[Log07, int]], *, blocking: bool
    ) -> tuple[int, Part | None]:
        """Return the size of the response for one partition, and the bytes if there are any. Add the log and the number
        of bytes to `out`, for metrics."""
        topic = self._admit(connection, kind, part.topic, part.partition)
        log_07 = self._directory.get(topic, part.partition)
        if log_07 is None:
            return 0, None
        try:
            region = log_07.read(part.at, max(part.most, 1), blocking=blocking)
        except BlockingIOError:
            raise
        except OSError as error:
            raise log_07.env.disk_error(f"reading {log_07.name}", error) from error
        if region is None:
            return 0, None
        if part.most <= 0:
            return part.most, None
        out.append((log_07, region.length))
        return region.length, region

    # --- Offsets

    def _offsets(self, connection: Connection, part: ReadPart, *, blocking: bool) -> Reply:
        topic = self._admit(connection, OFFSETS, part.topic, part.partition)
        log_07 = self._directory.get(topic, part.partition)
        if log_07 is None:
            return [encode_offsets([0] if part.at in (LATEST, EARLIEST) else [])]
        if not blocking and part.at not in (LATEST, EARLIEST):  # the modification times of files are needed
            work = partial(self._offsets, connection, part, blocking=True)
            return self._later(connection, OFFSETS, self._services.disk_pool, work)
        return [encode_offsets(log_07.offsets_before(part.at, part.most))]

    # --- checks of all requests

    def _admit(self, connection: Connection, kind: int, topic: str, partition: int) -> str:
        """Return the topic if the client may send this kind of request for it, and the topic has this partition. Raises
        IllegalTopic, Denied, WrongPartition."""
        name = check_topic(topic, self._longest_topic)
        if self._services.authorizer is not None:
            api, operation = _LIKE[kind]
            call = Call(cast("Served", TABLE.find(api)), 0, 0, "", connection, None)
            if denied_names(self._services, call, operation, "TOPIC", (name,)):
                raise Denied(f"{connection.principal} may not do {operation} on topic {name}")
        count = self._directory.count_of(name)
        if not 0 <= partition < count:
            raise WrongPartition(f"partition {partition} of topic {name}, which has {count}")
        return name

    # --- failures

    def _refuse(self, connection: Connection, kind: int, error: BaseException) -> Word:
        reason = error.message if isinstance(error, KafkaError) else str(error)
        self._warn(connection, kind, f"closing its connection: {reason}")
        return CLOSE

    def _warn(self, connection: Connection, kind: int, what: str) -> None:
        """Count a request that has failed, and log the reason `what`, unless there were too many such lines."""
        name = "a request"
        if 0 <= kind < len(NAMES):
            name = NAMES[kind]
            self.failed[name] += 1
        left_out = connection.processor.lines.admit(connection.peer[0])
        if left_out is not None:
            log.warning("%s of %s: %s%s", name, connection.name, what, left_out)
