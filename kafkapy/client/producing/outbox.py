"""Sends batches to the leaders of their partitions, and retries them.

The batches of a partition are stored in the order in which they were put into the outbox. If batches have sequence
numbers, several batches of a partition may be in flight, because the broker refuses a batch that arrives before its
predecessor (KIP-98). Without sequence numbers, only one batch of a partition is in flight. When a batch has to be
retried (after a retriable error, or if no response came), the outbox first waits for the responses to the partition's
other in-flight batches. Then it sends again, beginning with the first batch that is not stored.

Source: Kafka's RecordAccumulator, Sender and TransactionManager.
"""

import time
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.producing.in_flight import InFlightRequests
from kafkapy.client.producing.pending_batch import PendingBatch
from kafkapy.client.producing.requests import produce_request, produced_partitions
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import PRODUCE

TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE)
GRACE_S = 5.0  # added to the request's own time-out when waiting for the response
LONGEST_REQUEST = 100 * 1024 * 1024  # the default of the broker's socket.request.max.bytes
MAX_IN_FLIGHT = 5  # requests per broker; a partition remembers this many batches of a producer (ProducerStateEntry)


class ProducerCallbacks(Protocol):
    """The interface of a producer that an Outbox calls."""

    transactional_id: str | None

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        """Prepare for sending these batches. Called before the Produce request for them is built.

        If this raises an error, the batches are handled as if sending them had failed.
        """

    def encode(self, batch: PendingBatch) -> Any:
        """Return the batch's encoded bytes. Every call for the same batch returns the same bytes."""

    def stored(self, batch: PendingBatch, base_offset: int) -> None:
        """Handle the success of a batch.

        Called when the batch is stored; `base_offset` is -1 if its offset is not known.
        """

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Handle the failure of a batch.

        Called when retries cannot help, or when the time limit for retries has passed. In the second case, the batch
        may have been stored. After this call, the outbox drops all other batches that wait to be sent.
        """


class PartitionQueue:
    """The batches of one partition: those that wait to be sent (`waiting`) and those in flight (`sent`), both in order.

    `retrying` is True if a batch in `waiting` was sent before and has to be sent again.
    """

    __slots__ = ("retrying", "sent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingBatch] = deque()
        self.sent: list[PendingBatch] = []
        self.retrying = False

    def may_send(self, depth: int) -> bool:
        """Return True if the next waiting batch may be sent now. At most `depth` batches may be in flight at a time.

        If the next batch is a retry, the responses to all in-flight batches of the partition have to come first.
        """
        if not self.waiting or (self.retrying and self.sent) or len(self.sent) >= depth:
            return False
        self.retrying = False
        return True


class Outbox:
    """Sends batches to the leaders of their partitions, and handles the responses. For use in one thread.

    Args:
        acks: As for RecordProducer. With acks=0, batches count as stored when they are sent.
        numbered: Whether batches have sequence numbers.
        request_bytes: The largest size of a request with more than one batch.
        timeout_s: How long it may take until a batch is stored, with all retries.
    """

    def __init__(
        self,
        cluster: Cluster,
        producer: ProducerCallbacks,
        *,
        acks: int,
        numbered: bool,
        request_bytes: int,
        timeout_s: float,
    ) -> None:
        self.waiting_bytes = 0  # before compression
        self._cluster = cluster
        self._producer = producer
        self._acks = acks
        self._numbered = numbered
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._queues: defaultdict[TopicPartition, PartitionQueue] = defaultdict(PartitionQueue)
        self._in_flight: InFlightRequests[list[PendingBatch]] = InFlightRequests()
        self._pause_until = 0.0
        self._refresh_at = 0.0  # when to ask for the leaders of partitions that had none
        self._refusing = False
        self._places = 0
        self._known_to_broker: set[TopicPartition] = set()  # partitions that have stored a batch of this producer

    @property
    def is_empty(self) -> bool:
        return not self.waiting_bytes and not self._in_flight

    def waiting_partitions(self) -> set[TopicPartition]:
        """Return the partitions that have a batch waiting to be sent."""
        return {where for where, queue in self._queues.items() if queue.waiting}

    def put(self, batch: PendingBatch) -> None:
        """Append a batch to its partition's waiting batches. A later call of `step` sends the batch."""
        batch.closed_at = time.monotonic()
        self._places += 1
        batch.place = (self._places,)
        self._queues[batch.where].waiting.append(batch)
        self.waiting_bytes += batch.size

    def step(self, *, wait: bool) -> None:
        """Handle the responses that have arrived, and send the batches that may be sent.

        With `wait`, then block until a response arrives or the next retry is due.
        """
        self._take_answers(0.0)
        self._send_ready()
        if not wait:
            return
        pause = max(self._pause_until, self._refresh_at) - time.monotonic()
        if self._in_flight:
            longest = self._cluster.timeout_s + GRACE_S
            self._take_answers(min(pause, longest) if pause > 0 else longest)
            self._send_ready()
        elif pause > 0:
            time.sleep(pause)

    def drop(self) -> bool:
        """Drop all batches that wait to be sent.

        Return True if a dropped batch had been sent before and was waiting for a retry. The broker may have stored that
        batch.
        """
        was_sent = any(batch.data is not None for queue in self._queues.values() for batch in queue.waiting)
        for queue in self._queues.values():
            queue.waiting.clear()
        self.waiting_bytes = 0
        return was_sent

    def abandon(self) -> bool:
        """Drop all batches, after waiting for the responses to the in-flight requests, and forget all earlier failures.

        Return True if a dropped batch had been sent before. The broker may have stored that batch.
        """
        was_sent = self.drop()
        while self._in_flight:
            self._take_answers(self._cluster.timeout_s + GRACE_S)
            was_sent |= self.drop()
        self._queues.clear()
        self._known_to_broker.clear()
        self._refusing = False
        return was_sent

    def _send_ready(self) -> None:
        """Send all batches that may be sent now. If that fails, pause sending until a retry is due."""
        if time.monotonic() < self._pause_until:
            return
        try:
            while chosen := self._batches_by_leader():
                for node, batches in chosen.items():
                    self._send(node, batches)
        except (ClientError, KafkaError) as error:
            # The leader is not known or cannot be reached: retry later, and give up when the oldest batch times out.
            retriable = (
                is_retriable(error.code) if isinstance(error, KafkaError) else isinstance(error, ConnectionFailed)
            )
            self._back_off(error, retriable=retriable)

    def _batches_by_leader(self) -> dict[int, list[PendingBatch]]:
        """Return the batches to send in the next requests, by the broker id of the leader.

        There is at most one batch of each partition, within the limits for the request size and the number of requests
        in flight. Return {} if batches had to be dropped because their partition was without a leader for too long.
        """
        chosen: dict[int, list[PendingBatch]] = {}
        sizes: defaultdict[int, int] = defaultdict(int)
        leaderless = []
        for where, queue in self._queues.items():
            if not queue.may_send(self._depth(where)):
                continue
            node = self._cluster.leader_now(*where)
            batch = queue.waiting[0]
            if node < 0:
                leaderless.append(batch)
                continue
            if self._in_flight.count(node) >= MAX_IN_FLIGHT:
                continue
            if node in chosen and sizes[node] + batch.size > self._request_bytes:
                continue
            chosen.setdefault(node, []).append(batch)
            sizes[node] += batch.size
        if leaderless and not self._may_wait(leaderless):
            return {}
        return chosen

    def _may_wait(self, batches: Sequence[PendingBatch]) -> bool:
        """Keep these batches waiting, because their partitions have no leader. Ask for new metadata at intervals.

        Return True if they may wait. If the oldest of them has exceeded the time limit, fail it, which drops all
        waiting batches, and return False.
        """
        now = time.monotonic()
        oldest = min(batches, key=lambda batch: batch.closed_at)
        if now - oldest.closed_at > self._timeout_s:
            code = Errors.LEADER_NOT_AVAILABLE
            self._refuse(oldest, KafkaError(code, f"the partition had no leader for {self._timeout_s:g} s"))
            return False
        if now >= self._refresh_at:
            self._refresh_at = now + BACKOFF_S
            for batch in batches:
                self._cluster.topics.pop(batch.where[0], None)
        return True

    def _depth(self, where: TopicPartition) -> int:
        """Return the number of batches of a partition that may be in flight.

        With sequence numbers, this is MAX_IN_FLIGHT once the partition has stored a batch of this producer. Otherwise
        it is one.

        A broker that has no state of a producer accepts any sequence number, so it would store a second batch even if
        it had refused the first one as too large.
        """
        return MAX_IN_FLIGHT if self._numbered and where in self._known_to_broker else 1

    def _send(self, node: int, batches: list[PendingBatch]) -> None:
        """Send one Produce request with these batches to the broker with id `node`."""
        self._producer.before_sending(batches)
        request = produce_request(
            [(batch.where, self._producer.encode(batch)) for batch in batches],
            acks=self._acks,
            timeout_s=self._cluster.timeout_s,
            transactional_id=self._producer.transactional_id,
        )
        connection = self._cluster.connection(node)
        waiting = connection.send(PRODUCE, request, answer=self._acks != 0)
        for batch in batches:
            queue = self._queues[batch.where]
            queue.sent.append(queue.waiting.popleft())
            self.waiting_bytes -= batch.size
        if self._acks == 0:
            for batch in batches:
                self._stored(batch, -1)
        else:
            self._in_flight.add(node, connection, waiting, batches, self._cluster.timeout_s + GRACE_S)

    def _take_answers(self, wait_s: float) -> None:
        """Wait up to `wait_s` for responses, and handle the result of each batch in these responses."""
        for batches, answer in self._in_flight.take_responses(wait_s):
            if isinstance(answer, ClientError):
                # The batches may have been stored. Like Kafka's producer, send them again: the broker detects
                # duplicates by their sequence numbers; without sequence numbers, duplicates are better than losses.
                self._retry(batches, answer)
                continue
            answers = produced_partitions(answer)
            for batch in batches:
                self._answered(batch, answers.get(batch.where))

    def _answered(self, batch: PendingBatch, answer: Any) -> None:
        """Handle the result of one batch.

        `answer` is the partition's part of the Produce response, or None if it is missing. Depending on the error code,
        report the batch as stored, send it again, split it into halves, or report it as failed.
        """
        if answer is None:
            missing = "the broker's answer leaves this partition out"
            self._refuse(batch, KafkaError(Errors.UNKNOWN_SERVER_ERROR, missing))
            return
        code = answer.error_code
        if code in (Errors.NONE, Errors.DUPLICATE_SEQUENCE_NUMBER):
            self._stored(batch, answer.base_offset)
        elif is_retriable(code) or (code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER and self._others_may_explain(batch)):
            self._retry([batch], KafkaError(code))
        elif code in TOO_LARGE:
            self._too_large(batch, code)
        else:
            self._refuse(batch, KafkaError(code, answer.error_message or message_of(code)))

    def _too_large(self, batch: PendingBatch, code: int) -> None:
        """Replace a batch that the broker refused as too large by its two halves, like Kafka's producer (KIP-126).

        A batch with a single record fails.
        """
        if batch.count == 1:
            self._refuse(batch, _too_large(batch, code, "set the topic's max.message.bytes higher"))
            return
        queue = self._queues[batch.where]
        queue.sent.remove(batch)
        self._requeue(queue, batch.halves())

    def _others_may_explain(self, batch: PendingBatch) -> bool:
        """Return True if OUT_OF_ORDER_SEQUENCE_NUMBER for this batch may be due to other batches of the same partition.

        In that case retrying the batch may help: either an earlier batch has to be sent again first, or a later batch
        turns out to be stored, which means that this batch is stored, too.
        """
        queue = self._queues[batch.where]
        return len(queue.sent) > 1 or queue.retrying

    def _stored(self, batch: PendingBatch, base_offset: int) -> None:
        """Report a sent batch as stored.

        Report earlier batches of the partition that wait for a retry as stored, too.
        """
        queue = self._queues[batch.where]
        queue.sent.remove(batch)
        self._known_to_broker.add(batch.where)
        # Brokers accept no gaps in sequence numbers, so earlier batches are stored, too; only their offsets are lost.
        while self._numbered and queue.waiting and queue.waiting[0].place < batch.place:
            earlier = queue.waiting.popleft()
            self.waiting_bytes -= earlier.size
            self._producer.stored(earlier, -1)
        if not queue.sent and not queue.waiting:
            del self._queues[batch.where]
        self._producer.stored(batch, base_offset)

    def _retry(self, batches: Iterable[PendingBatch], error: KafkaError | ClientError) -> None:
        """Move these batches, which were sent, back to the waiting batches. They are sent again after a pause."""
        for batch in batches:
            queue = self._queues[batch.where]
            queue.sent.remove(batch)
            self._requeue(queue, [batch])
        self._back_off(error, retriable=True)

    def _requeue(self, queue: PartitionQueue, batches: Iterable[PendingBatch]) -> None:
        """Insert these batches into the partition's waiting batches in their original order.

        Drop them instead if a batch of this outbox has failed permanently.
        """
        if self._refusing:
            return
        queue.retrying = True
        for batch in batches:
            insort(queue.waiting, batch, key=_place)
            self.waiting_bytes += batch.size

    def _back_off(self, error: KafkaError | ClientError, *, retriable: bool) -> None:
        """Pause sending, and forget the leaders of all partitions with waiting batches.

        Fail the oldest waiting batch if the error is not retriable or the batch has exceeded the time limit.
        """
        self._pause_until = time.monotonic() + BACKOFF_S
        waiting = [queue.waiting[0] for queue in self._queues.values() if queue.waiting]
        for batch in waiting:
            self._cluster.topics.pop(batch.where[0], None)  # leaders may have changed
        oldest = min(waiting, key=lambda batch: batch.closed_at, default=None)
        if oldest is None:
            return
        if isinstance(error, ConnectionFailed) and len(oldest.data or b"") > LONGEST_REQUEST:
            # The broker sends no error for a request above its limit: it closes the connection on reading the size.
            hint = "set the broker's socket.request.max.bytes and the topic's max.message.bytes higher"
            self._refuse(oldest, _too_large(oldest, Errors.MESSAGE_TOO_LARGE, hint))
        elif not retriable or time.monotonic() - oldest.closed_at > self._timeout_s:
            self._refuse(oldest, error)

    def _refuse(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Report the batch as failed to the producer, and drop all batches that wait to be sent."""
        queue = self._queues[batch.where]
        if batch in queue.sent:
            queue.sent.remove(batch)
        self._refusing = True
        self._producer.refused(batch, error)
        self.drop()


def _too_large(batch: PendingBatch, code: int, hint: str) -> KafkaError:
    """Return the KafkaError for a batch that the broker refused as too large.

    `hint` says what the user can do other than make the batch smaller.
    """
    what = "with its batch the record has" if batch.count == 1 else "the batch has"
    size, topic = len(batch.data or b""), batch.where[0]
    text = f"{what} {size} bytes, more than the broker takes for topic {topic!r}: make it smaller, or {hint}"
    return KafkaError(code, text)


def _place(batch: PendingBatch) -> tuple[int, ...]:
    return batch.place
