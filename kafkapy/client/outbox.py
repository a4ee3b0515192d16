"""Batches on their way to the leaders of their partitions: what waits, what was sent, and what becomes of it.

A partition's batches are stored in the order in which they were put in. With sequence numbers several of them are on
the way at a time, and the broker refuses one that comes before its predecessor (KIP-98); without, one at a time.
Where one comes back, because it was refused for the moment or because its fate is unknown, those behind it are waited
for, and then the partition goes on from the first that is not stored.

Source: Kafka's RecordAccumulator, Sender and TransactionManager.
"""

import time
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.flights import Flights
from kafkapy.client.pending_batch import PendingBatch
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import PRODUCE

TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE)
GRACE_S = 5.0  # an answer may take this much longer than the broker was told to take
LONGEST_REQUEST = 100 * 1024 * 1024  # socket.request.max.bytes of a broker where nobody has set it
ON_THE_WAY = 5  # requests to a broker; as many batches of a producer a partition knows again (ProducerStateEntry)


class Sender(Protocol):
    """Whose batches they are."""

    transactional_id: str | None

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        """They are about to leave; what it raises is as if sending failed."""

    def encode(self, batch: PendingBatch) -> Any:
        """The bytes; the same each time."""

    def stored(self, batch: PendingBatch, base_offset: int) -> None:
        """It was; base_offset -1: where is not known."""

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """It was not, or nobody knows, and it is not tried again. What was to follow is dropped."""


class Lane:
    """The batches of one partition, in order. `came_back`: some that were sent wait again."""

    __slots__ = ("came_back", "sent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingBatch] = deque()
        self.sent: list[PendingBatch] = []
        self.came_back = False

    def may_send(self, depth: int) -> bool:
        if not self.waiting or (self.came_back and self.sent) or len(self.sent) >= depth:
            return False
        self.came_back = False
        return True


class Outbox:
    """For one thread.

    Args:
        acks: as RecordProducer has it; 0: nothing is waited for.
        numbered: whether batches have sequence numbers.
        request_bytes: how much goes into one request, if it is more than one batch.
        timeout_s: how long a batch may take to be stored, with all retries.
    """

    def __init__(
        self,
        cluster: Cluster,
        sender: Sender,
        *,
        acks: int,
        numbered: bool,
        request_bytes: int,
        timeout_s: float,
    ) -> None:
        self.waiting_bytes = 0  # before compression
        self._cluster = cluster
        self._sender = sender
        self._acks = acks
        self._numbered = numbered
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._lanes: defaultdict[TopicPartition, Lane] = defaultdict(Lane)
        self._flights: Flights[list[PendingBatch]] = Flights()
        self._pause_until = 0.0
        self._refusing = False
        self._places = 0
        self._begun: set[TopicPartition] = set()  # where the broker has a batch of this producer

    @property
    def is_empty(self) -> bool:
        return not self.waiting_bytes and not self._flights

    def waiting_partitions(self) -> set[TopicPartition]:
        """Those that something waits to be sent to."""
        return {where for where, lane in self._lanes.items() if lane.waiting}

    def put(self, batch: PendingBatch) -> None:
        """Takes a batch; it leaves with the next step that has room for it."""
        batch.closed_at = time.monotonic()
        self._places += 1
        batch.place = (self._places,)
        self._lanes[batch.where].waiting.append(batch)
        self.waiting_bytes += batch.size

    def step(self, *, wait: bool) -> None:
        """Takes the answers that are there and sends what may leave; with `wait` blocks until something has come."""
        self._take_answers(0.0)
        self._send_ready()
        if not wait:
            return
        if self._flights:
            self._take_answers(self._cluster.timeout_s + GRACE_S)
            self._send_ready()
        elif (pause := self._pause_until - time.monotonic()) > 0:
            time.sleep(pause)

    def drop(self) -> bool:
        """Forgets what waits; whether some of it was sent before."""
        was_sent = any(batch.data is not None for lane in self._lanes.values() for batch in lane.waiting)
        for lane in self._lanes.values():
            lane.waiting.clear()
        self.waiting_bytes = 0
        return was_sent

    def abandon(self) -> bool:
        """The same, and waits for the answers to what is on the way: what comes back is forgotten, too."""
        was_sent = self.drop()
        while self._flights:
            self._take_answers(self._cluster.timeout_s + GRACE_S)
            was_sent |= self.drop()
        self._lanes.clear()
        self._begun.clear()
        self._refusing = False
        return was_sent

    def _send_ready(self) -> None:
        if time.monotonic() < self._pause_until:
            return
        try:
            while chosen := self._batches_by_leader():
                for node, batches in chosen.items():
                    self._send(node, batches)
        except (ClientError, KafkaError) as error:
            # No leader is known: wait a moment, ask again, until the oldest batch has had its time.
            heals = is_retriable(error.code) if isinstance(error, KafkaError) else isinstance(error, ConnectionFailed)
            self._again_later(error, heals=heals)

    def _batches_by_leader(self) -> dict[int, list[PendingBatch]]:
        """The first waiting batch of each partition that may leave, within the size of a request to its leader."""
        chosen: dict[int, list[PendingBatch]] = {}
        sizes: defaultdict[int, int] = defaultdict(int)
        for where, lane in self._lanes.items():
            if not lane.may_send(self._depth(where)):
                continue
            node = self._cluster.leader_of(*where)
            batch = lane.waiting[0]
            if self._flights.count(node) >= ON_THE_WAY:
                continue
            if node in chosen and sizes[node] + batch.size > self._request_bytes:
                continue
            chosen.setdefault(node, []).append(batch)
            sizes[node] += batch.size
        return chosen

    def _depth(self, where: TopicPartition) -> int:
        """How many batches of a partition may be on the way. A broker that has nothing of a producer yet takes any
        sequence number from it: a second batch would be stored though the first was refused as too large."""
        return ON_THE_WAY if self._numbered and where in self._begun else 1

    def _send(self, node: int, batches: list[PendingBatch]) -> None:
        self._sender.before_sending(batches)
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for batch in batches:
            topic, partition = batch.where
            data = PRODUCE.Request.TopicData.PartitionData(index=partition, records=self._sender.encode(batch))
            topics[topic].append(data)
        request = PRODUCE.Request(
            transactional_id=self._sender.transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[PRODUCE.Request.TopicData(name=name, partition_data=data) for name, data in topics.items()],
        )
        connection = self._cluster.connection(node)
        waiting = connection.send(PRODUCE, request, answer=self._acks != 0)
        for batch in batches:
            lane = self._lanes[batch.where]
            lane.sent.append(lane.waiting.popleft())
            self.waiting_bytes -= batch.size
        if self._acks == 0:
            for batch in batches:
                self._stored(batch, -1)
        else:
            self._flights.add(node, connection, waiting, batches, self._cluster.timeout_s + GRACE_S)

    def _take_answers(self, wait_s: float) -> None:
        for batches, answer in self._flights.land(wait_s):
            if isinstance(answer, ClientError):
                # They may have been stored. With sequence numbers, or when the caller accepts repeats in place of
                # losses (as Kafka's producer does), they are sent again.
                self._come_back(batches, answer)
                continue
            answers: dict[TopicPartition, Any] = {
                (topic.name, one.index): one for topic in answer.responses for one in topic.partition_responses
            }
            for batch in batches:
                self._answered(batch, answers.get(batch.where))

    def _answered(self, batch: PendingBatch, answer: Any) -> None:
        if answer is None:
            missing = "the broker's answer leaves this partition out"
            self._refuse(batch, KafkaError(Errors.UNKNOWN_SERVER_ERROR, missing))
            return
        code = answer.error_code
        if code in (Errors.NONE, Errors.DUPLICATE_SEQUENCE_NUMBER):
            self._stored(batch, answer.base_offset)
        elif is_retriable(code) or (code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_not_alone(batch)):
            self._come_back([batch], KafkaError(code))
        elif code in TOO_LARGE:
            self._too_large(batch, code)
        else:
            self._refuse(batch, KafkaError(code, answer.error_message or message_of(code)))

    def _too_large(self, batch: PendingBatch, code: int) -> None:
        """Halves go in its place (as Kafka's producer does, KIP-126); a single record cannot be stored."""
        if batch.count == 1:
            self._refuse(batch, _too_large(batch, code, "set the topic's max.message.bytes higher"))
            return
        lane = self._lanes[batch.where]
        lane.sent.remove(batch)
        self._put_back(lane, batch.halves())

    def _is_not_alone(self, batch: PendingBatch) -> bool:
        """Whether its partition's other batches may explain that a sequence number was not the next one: an earlier one
        that has to be sent again; or a later one that turns out to be stored, and this one with it."""
        lane = self._lanes[batch.where]
        return len(lane.sent) > 1 or lane.came_back

    def _stored(self, batch: PendingBatch, base_offset: int) -> None:
        lane = self._lanes[batch.where]
        lane.sent.remove(batch)
        self._begun.add(batch.where)
        # A broker takes sequence numbers without gaps: those before it are stored, though it may have forgotten them.
        while self._numbered and lane.waiting and lane.waiting[0].place < batch.place:
            earlier = lane.waiting.popleft()
            self.waiting_bytes -= earlier.size
            self._sender.stored(earlier, -1)
        if not lane.sent and not lane.waiting:
            del self._lanes[batch.where]
        self._sender.stored(batch, base_offset)

    def _come_back(self, batches: Iterable[PendingBatch], error: KafkaError | ClientError) -> None:
        for batch in batches:
            lane = self._lanes[batch.where]
            lane.sent.remove(batch)
            self._put_back(lane, [batch])
        self._again_later(error, heals=True)

    def _put_back(self, lane: Lane, batches: Iterable[PendingBatch]) -> None:
        if self._refusing:
            return
        lane.came_back = True
        for batch in batches:
            insort(lane.waiting, batch, key=_place)
            self.waiting_bytes += batch.size

    def _again_later(self, error: KafkaError | ClientError, *, heals: bool) -> None:
        self._pause_until = time.monotonic() + BACKOFF_S
        waiting = [lane.waiting[0] for lane in self._lanes.values() if lane.waiting]
        for batch in waiting:
            self._cluster.topics.pop(batch.where[0], None)  # leaders may have changed: ask anew
        oldest = min(waiting, key=lambda batch: batch.closed_at, default=None)
        if oldest is None:
            return
        if isinstance(error, ConnectionFailed) and len(oldest.data or b"") > LONGEST_REQUEST:
            # A broker says nothing of such a request: it hangs up when it has seen the size.
            hint = "set the broker's socket.request.max.bytes and the topic's max.message.bytes higher"
            self._refuse(oldest, _too_large(oldest, Errors.MESSAGE_TOO_LARGE, hint))
        elif not heals or time.monotonic() - oldest.closed_at > self._timeout_s:
            self._refuse(oldest, error)

    def _refuse(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        lane = self._lanes[batch.where]
        if batch in lane.sent:
            lane.sent.remove(batch)
        self._refusing = True
        self._sender.refused(batch, error)
        self.drop()


def _too_large(batch: PendingBatch, code: int, hint: str) -> KafkaError:
    """`hint`: what can be done, but for making it smaller."""
    what = "with its batch the record has" if batch.count == 1 else "the batch has"
    size, topic = len(batch.data or b""), batch.where[0]
    told = f"{what} {size} bytes, more than the broker takes for topic {topic!r}: make it smaller, or {hint}"
    return KafkaError(code, told)


def _place(batch: PendingBatch) -> tuple[int, ...]:
    return batch.place
