"""Who asks in a gather of produce requests, and what they are told: a place for each record set's answer.

The answers of a connection leave together, when the last partition has given its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafkapy._ext.hotpath import ProduceRequest, encode_produce_response
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.network.replies import CLOSE, NO_REPLY, Reply, Send
from kafkapy.replica.partition import Verdict
from kafkapy.server.call import MeteredPending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.server.meters import RequestMeters

log = logging.getLogger("kafkapy.server.produce")

# (index, error code, base offset, log append time, log start offset, record errors or None, message or None)
Answer = tuple[int, int, int, int, int, Any, Any]

SUPPORTS_UNKNOWN_PRODUCER = 4  # older clients know KAFKA_STORAGE_ERROR by another name
FAILURES_SHOWN = 10
LONGEST_NAME = 249


class Slot:
    """Where one record set's answer belongs: its place in the list of its topic and request."""

    __slots__ = ("answers", "asked", "index", "meters", "place", "version")

    def __init__(
        self,
        asked: Asked,
        answers: list[Answer | None],
        place: int,
        index: int,
        version: int,
        meters: RequestMeters,
    ) -> None:
        self.asked = asked
        self.meters = meters
        self.answers = answers
        self.place = place
        self.index = index
        self.version = version

    def fill(self, verdict: Verdict) -> None:
        if isinstance(verdict, KafkaError):
            self.meters.error("Produce", verdict.code)
            answer = _refused(self.index, verdict, self.version)
        else:
            base_offset, _, append_time, start_offset, _ = verdict
            answer = (self.index, 0, base_offset, append_time, start_offset, None, None)
        self.answers[self.place] = answer


def _refused(index: int, error: KafkaError, version: int) -> Answer:
    code = error.code
    if code == Errors.KAFKA_STORAGE_ERROR and version < SUPPORTS_UNKNOWN_PRODUCER:
        code = Errors.NOT_LEADER_OR_FOLLOWER
    return (index, code, -1, -1, -1, getattr(error, "record_errors", None), error.message)


class Asked:
    """The requests that one connection has in a gather, and what becomes of them."""

    def __init__(
        self, connection: Connection, frames: Sequence[ProduceRequest], pending: MeteredPending | None = None
    ) -> None:
        self.connection = connection
        self.frames = frames
        # one list of (topic, answers) a request, in the order asked
        self.answers: list[list[tuple[str, list[Any]]]] = []
        # Partitions that have not answered, and the handler itself, given up by `release`, or by `less` if there is a
        # Pending from the beginning. Each takes one entry away, which needs no lock: whoever gets the first, the only
        # True, is last.
        self._awaited = [True]
        self.failed = False
        self._pending = pending

    def more(self) -> None:
        """One more partition is to answer; said before the first of them does."""
        self._awaited.append(False)

    def less(self) -> None:
        """A partition has answered. The last one sends the answers."""
        if self._awaited.pop() and self._pending is not None:
            self._pending.complete(self._reply())

    def release(self, *, keeps_buffer: bool) -> list[Reply]:
        """Called last by the handler: the replies when every answer is there, else the Pending that will carry them."""
        if self.failed:
            return [CLOSE]
        if len(self._awaited) > 1:
            # Known before we give up our own entry: a partition may answer at any time, but is not the last until then.
            self._pending = pending_of(self.connection, self.frames, keeps_buffer=keeps_buffer)
        if not self._awaited.pop():
            assert self._pending is not None
            return [self._pending]
        first = self._reply()
        return [first] + [NO_REPLY] * (len(self.frames) - 1) if first is not CLOSE else [CLOSE]

    def encode(self) -> Reply:
        """The responses of all requests, one after the other; CLOSE where one with acks=0 failed."""
        parts: Send = []
        for frame, topics in zip(self.frames, self.answers, strict=True):
            if frame.acks:
                parts.append(encode_produce_response(frame.api_version, frame.correlation_id, topics, 0))
            elif why := _failures(topics):
                log.info(
                    "closing the connection of %r: produce with acks=0 failed, and this is how it learns: %s",
                    frame.client_id,
                    why,
                )
                return CLOSE
        return parts or NO_REPLY

    def _reply(self) -> Reply:
        try:
            return self.encode()
        except Exception:  # without an answer the connection would keep its receive buffer, and wait for good
            log.exception("the answer to produce of %r cannot be made", self.frames[0].client_id)
            return CLOSE


def _failures(topics: list[tuple[str, list[Answer | None]]]) -> str:
    failed = [
        (topic, answer)
        for topic, answers in topics
        for answer in answers
        if answer is not None and answer[1] != Errors.NONE
    ]
    # For the log: neither as many as a request can hold, nor names longer than a topic's can be.
    shown = [f"{topic[:LONGEST_NAME]}-{answer[0]}: {name_of(answer[1])}" for topic, answer in failed[:FAILURES_SHOWN]]
    if len(failed) > FAILURES_SHOWN:
        shown.append(f"and {len(failed) - FAILURES_SHOWN} more")
    return ", ".join(shown)


def pending_of(
    connection: Connection, frames: Sequence[ProduceRequest], *, keeps_buffer: bool = True
) -> MeteredPending:
    """Carries the answers of all of them, and keeps the records where they are if they are the connection's."""
    pending = MeteredPending(connection)
    pending.covers = len(frames)
    pending.keeps_buffer = keeps_buffer
    return pending
