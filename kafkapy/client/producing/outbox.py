"""Batches on their way to the leaders of their partitions.

A partition's batches are stored in the order in which they were put in. With sequence numbers, several batches of a
partition may be in flight, and the broker refuses a batch that arrives before its predecessor (KIP-98). Without
sequence numbers, one batch is in flight. When a batch has to be retried (a retriable error, or no response), the
partition's other in-flight batches are waited for first; then sending restarts at the first batch that is not stored.

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
MAX_IN_FLIGHT = 5  # requests per broker; a partition remembers as many batches of a producer (ProducerStateEntry)


class ProducerCallbacks(Protocol):
    """The producer's methods that an Outbox calls."""

    transactional_id: str | None

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        """Called before a request is built. An error raised here is handled like a failure to send."""

    def encode(self, batch: PendingBatch) -> Any:
        """Return the batch's bytes; the same bytes on every call."""

    def stored(self, batch: PendingBatch, base_offset: int) -> None:
        """Called when the batch is stored. `base_offset` is -1 if the offset is not known."""

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Called when the batch failed permanently, or its fate is unknown after all retries.

        All other waiting batches are dropped after this call.
        """


class PartitionQueue:
    """The batches of one partition, in order. `retrying` is True if a batch that was sent waits for its retry."""

    __slots__ = ("retrying", "sent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingBatch] = deque()
        self.sent: list[PendingBatch] = []
        self.retrying = False

    def may_send(self, depth: int) -> bool:
        """Return True if the next batch may be sent now, with at most `depth` batches in flight."""
        if not self.waiting or (self.retrying and self.sent) or len(self.sent) >= depth:
            return False
        self.retrying = False
        return True


class Outbox:
    """Sends batches to their leaders and handles the responses. For one thread.

    Args:
        acks: As for RecordProducer. With 0, batches count as stored when they are sent.
        numbered: Whether batches have sequence numbers.
        request_bytes: The largest size of a request with more than one batch.
        timeout_s: How long a batch may take to be stored, with all retries.
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
        """Add a batch. A later `step` sends it."""
        batch.closed_at = time.monotonic()
        self._places += 1
        batch.place = (self._places,)
        self._queues[batch.where].waiting.append(batch)
        self.waiting_bytes += batch.size

    def step(self, *, wait: bool) -> None:
        """Handle the responses that have arrived and send the batches that may be sent.

        With `wait`, block until a response arrives; if nothing is in flight, until the next retry is due.
        """
        self._take_answers(0.0)
        self._send_ready()
        if not wait:
            return
        if self._in_flight:
            self._take_answers(self._cluster.timeout_s + GRACE_S)
            self._send_ready()
        elif (pause := max(self._pause_until, self._refresh_at) - time.monotonic()) > 0:
            time.sleep(pause)

    def drop(self) -> bool:
        """Drop the waiting batches. Return True if one was sent before, so that the broker may have stored it."""
        was_sent = any(batch.data is not None for queue in self._queues.values() for batch in queue.waiting)
        for queue in self._queues.values():
            queue.waiting.clear()
        self.waiting_bytes = 0
        return was_sent

    def abandon(self) -> bool:
        """Drop all batches, after the responses to the in-flight requests. Return True if a dropped batch was sent."""
        was_sent = self.drop()
        while self._in_flight:
            self._take_answers(self._cluster.timeout_s + GRACE_S)
            was_sent |= self.drop()
        self._queues.clear()
        self._known_to_broker.clear()
        self._refusing = False
        return was_sent

    def _send_ready(self) -> None:
        """Send every batch that may be sent now."""
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
        """Return the next batches to send, by leader: one of each partition, within the size and in-flight limits."""
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
        """Keep batches without a leader waiting, and ask for new metadata at intervals.

        Return False if the oldest of them has exceeded the time limit; then all waiting batches were dropped.
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
        """Return how many batches of a partition may be in flight: one until a batch of this producer is stored.

        A broker without state for a producer accepts any sequence number. So a second batch would be stored even if the
        first was refused as too large.
        """
        return MAX_IN_FLIGHT if self._numbered and where in self._known_to_broker else 1

    def _send(self, node: int, batches: list[PendingBatch]) -> None:
        """Send one Produce request with these batches to a broker."""
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
        """Handle responses, waiting up to `wait_s` for the first."""
        for batches, answer in self._in_flight.take_responses(wait_s):
            if isinstance(answer, ClientError):
                # The batches may have been stored. Like Kafka's producer, send them again: the broker detects
                # duplicates by their sequence numbers; a producer without those prefers duplicates to losses.
                self._retry(batches, answer)
                continue
            answers = produced_partitions(answer)
            for batch in batches:
                self._answered(batch, answers.get(batch.where))

    def _answered(self, batch: PendingBatch, answer: Any) -> None:
        """Handle the response for one batch: stored, retried, split, or failed."""
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
        """Replace the batch by its two halves, like Kafka's producer (KIP-126). A single record fails."""
        if batch.count == 1:
            self._refuse(batch, _too_large(batch, code, "set the topic's max.message.bytes higher"))
            return
        queue = self._queues[batch.where]
        queue.sent.remove(batch)
        self._requeue(queue, batch.halves())

    def _others_may_explain(self, batch: PendingBatch) -> bool:
        """Return True if the partition's other batches may explain OUT_OF_ORDER_SEQUENCE_NUMBER for this batch.

        Either an earlier batch has to be sent again first. Or a later batch turns out to be stored, which means that
        this batch is stored, too.
        """
        queue = self._queues[batch.where]
        return len(queue.sent) > 1 or queue.retrying

    def _stored(self, batch: PendingBatch, base_offset: int) -> None:
        """Report the batch as stored, and the earlier ones that wait for a retry."""
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
        """Move batches that were sent back to the waiting ones, to be retried after a pause."""
        for batch in batches:
            queue = self._queues[batch.where]
            queue.sent.remove(batch)
            self._requeue(queue, [batch])
        self._back_off(error, retriable=True)

    def _requeue(self, queue: PartitionQueue, batches: Iterable[PendingBatch]) -> None:
        """Insert batches into a partition's queue at their places, unless the outbox is giving up."""
        if self._refusing:
            return
        queue.retrying = True
        for batch in batches:
            insort(queue.waiting, batch, key=_place)
            self.waiting_bytes += batch.size

    def _back_off(self, error: KafkaError | ClientError, *, retriable: bool) -> None:
        """Pause sending and forget the leaders. Fail if the error is permanent or the oldest batch has timed out."""
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
        """Report the batch as failed and drop everything that waits."""
        queue = self._queues[batch.where]
        if batch in queue.sent:
            queue.sent.remove(batch)
        self._refusing = True
        self._producer.refused(batch, error)
        self.drop()


def _too_large(batch: PendingBatch, code: int, hint: str) -> KafkaError:
    """Return the error for a batch that is too large. `hint` says what can be done besides making it smaller."""
    what = "with its batch the record has" if batch.count == 1 else "the batch has"
    size, topic = len(batch.data or b""), batch.where[0]
    text = f"{what} {size} bytes, more than the broker takes for topic {topic!r}: make it smaller, or {hint}"
    return KafkaError(code, text)


def _place(batch: PendingBatch) -> tuple[int, ...]:
    return batch.place
