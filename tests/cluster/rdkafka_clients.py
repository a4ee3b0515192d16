"""Clients of librdkafka that write histories: `python -m tests.cluster.rdkafka_clients ROLE JSON`.

The JSON has bootstrap, client (its name), file (of the history) and the options of the role. Commands are lines on
standard input: "stop" ends a producer; after `finish {"TOPIC": [END, ...]}` a consumer, member or copier continues
until it has read (or committed) up to these offsets.
"""

import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, libversion

from tests.cluster.history import Writer, name

PADDING = "." + "x" * 60
STALL_S = 60
GIVES_UP_BROKERS = 0x020A0000  # since this version, librdkafka drops brokers that Metadata does not name
_OUT_OF_RANGE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # the second is also a truncation
_TRUNCATION = "log truncation detected"
COMMON: dict[str, str | int] = {
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 3,
}
if libversion()[1] >= GIVES_UP_BROKERS:
    # Otherwise a client may never connect again after all brokers were down at once. Even so it may not, if an Apache
    # Kafka broker that has just started responds without brokers: use an older version for long runs beside Kafka.
    COMMON["metadata.recovery.strategy"] = "none"
if contexts := os.environ.get("KAFKAPY_RDKAFKA_DEBUG"):  # librdkafka's debug contexts, such as eos,msg
    COMMON |= {"debug": contexts, "log_level": 7}


class Commands:
    """The commands on standard input, read by a thread of its own."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.ends: dict[tuple[str, int], int] | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "finish":
                self.ends = {
                    (topic, partition): end
                    for topic, ends in json.loads(rest).items()
                    for partition, end in enumerate(ends)
                }
            self.stopped.set()
        self.stopped.set()


def produce(options: dict[str, Any], history: Writer, commands: Commands) -> None:
    """Send `rate` records a second to the partitions in turn until "stop", and wait for all acknowledgements."""
    idempotent = options.get("idempotent", False)
    producer = Producer(
        {
            **COMMON,
            "bootstrap.servers": options["bootstrap"],
            "acks": options["acks"],
            "enable.idempotence": idempotent,
            # With more than one, a request behind a refused one is out of order. librdkafka 2.16 then begins a new
            # producer epoch, and sends records of other partitions again that may be stored already (issue 4953).
            **({"max.in.flight.requests.per.connection": 1} if idempotent else {}),
            "compression.type": options.get("compression", "none"),
            "linger.ms": 20,
            "message.timeout.ms": 120_000,
            "request.timeout.ms": 5000,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        about = {"topic": message.topic(), "p": message.partition(), "v": name(message.value())}
        if error is None:
            offset = message.offset()
            history("acked", **about, **({} if offset is None or offset < 0 else {"o": offset}))
        else:
            history("failed", **about, error=str(error))

    number = 0
    begin = time.monotonic()
    while not commands.stopped.wait(max(0.0, begin + number / options["rate"] - time.monotonic())):
        value, partition = f"{options['client']}:{number}", number % options["partitions"]
        history("sent", topic=options["topic"], p=partition, v=value)
        try:
            producer.produce(options["topic"], value + PADDING, partition=partition, on_delivery=delivered)
        except BufferError:
            history("failed", topic=options["topic"], p=partition, v=value, error="queue full")
        except KafkaException as error:
            # An Apache Kafka broker that has just started does not know its topics yet.
            if error.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                history("error", error=f"produce: {error}")
                return
            history("failed", topic=options["topic"], p=partition, v=value, error=str(error))
        number += 1
        producer.poll(0)
    if left := producer.flush(130):
        history("error", error=f"{left} records have no result after the flush")


def _saw(history: Writer, message: Message) -> None:
    epoch = message.leader_epoch()
    history(
        "seen",
        topic=message.topic(),
        p=message.partition(),
        o=message.offset(),
        v=name(message.value()),
        epoch=-1 if epoch is None else epoch,
    )


def _consumer(options: dict[str, Any], **settings: Any) -> Consumer:
    return Consumer(
        {
            **COMMON,
            "bootstrap.servers": options["bootstrap"],
            "group.id": options.get("group", f"none-{options['client']}"),
            "isolation.level": options.get("isolation", "read_uncommitted"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "client.rack": options.get("rack", ""),
            **settings,
        }
    )


def _fatal(error: KafkaError) -> bool:
    """Return True for an unexpected error. The client retries after errors that faults of brokers cause."""
    return bool(error.fatal()) or error.code() in (
        *_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
        KafkaError._BAD_MSG,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def consume(options: dict[str, Any], history: Writer, commands: Commands) -> None:
    """Read all partitions of the topics from their beginning up to the ends that "finish" names.

    A new consumer replaces the old one, and continues at its position, in three cases:
    - No records came for STALL_S after "finish". A consumer of librdkafka 2.16 can cease to connect to brokers after
      several were down at once. The history gets the state of its connections.
    - The offset is out of range at a follower (KIP-392), but not at the leader: a move of replicas has emptied the
      follower.
    - The consumer reports a truncation that did not happen, see `is_no_truncation`.
    """
    statistics = Statistics()
    position = {(topic, p): 0 for topic, count in options["topics"].items() for p in range(count)}
    epochs: dict[tuple[str, int], int] = {}  # leader epoch of the last record
    while not _reached(commands, position):
        consumer = _consumer(options, **statistics.settings)
        consumer.assign([TopicPartition(*key, offset) for key, offset in position.items()])
        stall, refused = Stall(commands), False
        while not _reached(commands, position):
            for message in consumer.consume(500, 0.2):
                error = message.error()
                key = message.topic(), message.partition()
                if error is None:
                    _saw(history, message)
                    position[key] = message.offset() + 1
                    epochs[key] = message.leader_epoch()
                    stall.begin_again()
                elif error.code() == KafkaError._PARTITION_EOF:
                    position[key] = message.offset()
                elif is_no_truncation(error, epochs.get(key)):
                    history("no truncation", error=f"{error} {key[0]}-{key[1]} {position[key]}")
                    refused = True
                elif _is_out_of_range(error) and _is_in_range(consumer, key, position[key]):
                    history("out of range at a follower", error=f"{error} {key[0]}-{key[1]} {position[key]}")
                    refused = True
                elif _fatal(error):
                    history("error", error=f"consume: {error} {key[0]}-{key[1]} {message.offset()}")
                    return
            if refused:
                break
            if stall.is_reached():
                history("stalled", brokers=statistics.brokers)
                break
        consumer.close()


def is_no_truncation(error: KafkaError, epoch: int | None) -> bool:
    """Return True for the report of a truncation after an earlier leader epoch than `epoch`, that of the last record
    that the consumer has read from the partition.

    Such a report is wrong. librdkafka (2.8 and 2.16) keeps the leader epoch of the last received batch even if it skips
    the batch because all of its records are before the position. A late response to an earlier fetch has such batches.
    At the next change of the leader, librdkafka compares its position with the end of that earlier epoch.
    """
    found = re.search(rf"{_TRUNCATION} at .*?leader epoch (\d+)", str(error))
    return found is not None and epoch is not None and int(found[1]) < epoch


def _is_out_of_range(error: KafkaError) -> bool:
    return error.code() in _OUT_OF_RANGE and _TRUNCATION not in str(error)


def _is_in_range(consumer: Consumer, key: tuple[str, int], offset: int) -> bool:
    """Return True if the offset is in the leader's log or is its high watermark."""
    first, end = consumer.get_watermark_offsets(TopicPartition(*key), timeout=20)
    return bool(first <= offset <= end)


class Stall:
    """Measures for how long a consumer has got no records after "finish"."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._since = time.monotonic()

    def begin_again(self) -> None:
        """Restart the measurement, because a record has come."""
        self._since = time.monotonic()

    def is_reached(self) -> bool:
        """Return True if no record has come for STALL_S."""
        if self._commands.ends is None:
            self.begin_again()
        return time.monotonic() > self._since + STALL_S


class Statistics:
    """The state of a client's connections to brokers, from librdkafka's statistics."""

    def __init__(self) -> None:
        self.brokers: dict[str, dict[str, Any]] = {}
        self.settings: dict[str, Any] = {"statistics.interval.ms": 5000, "stats_cb": self._keep}

    def _keep(self, text: str) -> None:
        names = ("state", "stateage", "outbuf_cnt", "waitresp_cnt", "connects", "disconnects", "req_timeouts")
        self.brokers = {
            name: {field: one.get(field) for field in names} for name, one in json.loads(text)["brokers"].items()
        }


def _reached(commands: Commands, position: dict[tuple[str, int], int]) -> bool:
    if commands.ends is None:
        return commands.stopped.is_set()
    return all(position.get(key, 0) >= end for key, end in commands.ends.items())


def be_member(options: dict[str, Any], history: Writer, commands: Commands) -> None:
    """Read topics as a member of a group, and commit, until the group has committed up to the ends.

    A consumer that has got no records for STALL_S after "finish" is replaced, see `consume`. While such a consumer
    still sends heartbeats to the coordinator, no other member gets its partitions.
    """
    statistics = Statistics()
    while _read_as_member(options, history, commands, statistics):
        pass


def _read_as_member(options: dict[str, Any], history: Writer, commands: Commands, statistics: Statistics) -> bool:
    """Read and commit as one member. Return True if a new consumer must continue, False at the end or on an error."""
    epochs: dict[tuple[str, int], int] = {}  # leader epoch of the last record
    ends: dict[tuple[str, int], int] = {}  # offsets after the records that are read and not committed

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ends.clear()  # the member that gets these partitions reads from the last commit
        for one in partitions:
            one.offset = 0
        while partitions:
            asked = time.monotonic()
            try:
                committed = consumer.committed(partitions, timeout=10)
                if any(one.error for one in committed):
                    continue
            except KafkaException:
                continue
            for one in committed:
                one.offset = max(one.offset, 0)
                history("assigned", topic=one.topic, p=one.partition, o=one.offset, t0=asked)
            consumer.assign(committed)
            return

    consumer = _consumer(options, **{"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}, **statistics.settings)
    consumer.subscribe(list(options["topics"]), on_assign=assigned)
    everything = [TopicPartition(topic, p) for topic, count in options["topics"].items() for p in range(count)]
    next_look = 0.0
    stall = Stall(commands)
    while not stall.is_reached():
        for message in consumer.consume(200, 0.2):
            error = message.error()
            if error is None:
                _saw(history, message)
                ends[message.topic(), message.partition()] = message.offset() + 1
                epochs[message.topic(), message.partition()] = message.leader_epoch()
                stall.begin_again()
            elif is_no_truncation(error, epochs.get((message.topic(), message.partition()))):
                history("no truncation", error=f"{error} {message.topic()}-{message.partition()}")
                consumer.close()
                return True
            elif _fatal(error) and error.code() != KafkaError._MAX_POLL_EXCEEDED:
                history("error", error=f"consume: {error}")
                return False
        if ends:
            asked = time.monotonic()
            try:
                offsets = [TopicPartition(topic, p, end) for (topic, p), end in ends.items()]
                done = consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                continue  # the next round of the loop commits these offsets, too
            ends.clear()
            for one in done or []:
                if one.error is None:
                    history("committed", topic=one.topic, p=one.partition, o=one.offset, t0=asked)
        if commands.ends is not None and time.monotonic() > next_look:
            next_look = time.monotonic() + 0.5
            try:
                reached = {(one.topic, one.partition): one.offset for one in consumer.committed(everything, timeout=10)}
            except KafkaException:
                continue
            if _reached(commands, reached):
                consumer.close()
                return False
    history("stalled", brokers=statistics.brokers)
    consumer.close()
    return True


def copy(options: dict[str, Any], history: Writer, commands: Commands) -> None:
    """Copy a topic to another in transactions that also commit the offsets. Abort every fifth one on purpose."""
    Copier(options, history, commands).run()


class Copier:
    """A read-process-write job with a consumer, and a transactional producer that is replaced when it fails."""

    def __init__(self, options: dict[str, Any], history: Writer, commands: Commands) -> None:
        self._options = options
        self._history = history
        self._commands = commands
        self._statistics = Statistics()
        self._consumer = self._new_consumer()
        self._position: dict[tuple[str, int], int] = {}
        self._records = itertools.count()
        self._marks = itertools.count(1)
        self._abandoned: list[Producer] = []  # kept, as the destructor of a hung producer would hang

    def run(self) -> None:
        """Copy until all records up to the ends are copied and committed. Replace a stalled consumer, see `consume`."""
        producer: Producer | None = None
        transactions = 0
        stall = Stall(self._commands)
        while True:
            if producer is None:
                producer = self._new_producer()
                self._continue_at_committed()
            if self._commands.ends is not None and _reached(self._commands, self._position):
                break
            messages = [message for message in self._consumer.consume(100, 0.3) if message.error() is None]
            if not messages:
                if stall.is_reached():
                    self._history("stalled", brokers=self._statistics.brokers)
                    self._consumer.close()
                    self._consumer = self._new_consumer()
                    self._continue_at_committed()
                    stall.begin_again()
                continue
            stall.begin_again()
            transactions += 1
            outcome = self._transact(producer, messages, commit=transactions % 5 != 0)
            if outcome == "unknown":
                producer = None  # the next producer's init_transactions completes or aborts the transaction
            elif outcome == "aborted":
                self._continue_at_committed()
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return _consumer({**self._options, "isolation": "read_committed"}, **self._statistics.settings)

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                **COMMON,
                "bootstrap.servers": self._options["bootstrap"],
                "transactional.id": self._options["client"],
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 19_000,
                "linger.ms": 10,
            }
        )
        _until_done(lambda: producer.init_transactions(10))
        return producer

    def _continue_at_committed(self) -> None:
        """Continue reading at the committed offsets.

        A coordinator that was replaced while it was frozen may still answer OffsetFetch with old offsets, but cannot
        acknowledge a commit. So first commit an offset of a partition that no member of the group reads: the
        coordinator that acknowledges this commit has the newest offsets.
        """
        mark = TopicPartition(self._options["topic"], 0, next(self._marks))
        _until_done(lambda: self._consumer.commit(offsets=[mark], asynchronous=False))
        everything = [TopicPartition(self._options["source"], p) for p in range(self._options["partitions"])]
        committed = _until_done(lambda: self._consumer.committed(everything, timeout=10))
        for one in committed:
            one.offset = max(one.offset, 0)
            self._position[one.topic, one.partition] = one.offset
        self._consumer.unassign()
        self._consumer.assign(committed)

    def _transact(self, producer: Producer, messages: list[Message], *, commit: bool) -> str:
        """Copy the messages in one transaction. Return its outcome: committed, aborted or unknown."""
        read = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(topic, p, end) for (topic, p), end in read.items()]
        values: list[str] = []
        outcome = "unknown"
        try:
            producer.begin_transaction()
            for message in messages:
                values.append(f"{self._options['client']}:{next(self._records)}|{name(message.value())}")
                self._history("sent", topic=self._options["topic"], p=message.partition(), v=values[-1])
                producer.produce(self._options["topic"], values[-1] + PADDING, partition=message.partition())
            group = self._consumer.consumer_group_metadata()
            _retried(lambda: producer.send_offsets_to_transaction(offsets, group, 10))
            _retried(lambda: producer.commit_transaction(10) if commit else producer.abort_transaction(10))
            outcome = "committed" if commit else "aborted"
        except KafkaException as failure:
            if failure.args[0].txn_requires_abort():
                try:
                    _retried(lambda: producer.abort_transaction(10))
                    outcome = "aborted"
                except (KafkaException, Hung):
                    pass
        except Hung:
            self._abandoned.append(producer)
        self._history("ended", outcome=outcome, values=values)
        if outcome == "committed":
            self._position.update(read)
        return outcome


class Hung(Exception):
    """A call of the client did not return."""


def _retried(step: Callable[[], Any]) -> None:
    """Do a step of a transaction. Repeat it for two minutes while it fails with a retriable error.

    The step runs in a thread: librdkafka 2.16's send_offsets_to_transaction never returns if the coordinator aborts the
    transaction meanwhile, whatever its time-out.

    Raises:
        KafkaException: The transaction cannot continue.
        Hung: The step did not return for a minute.
    """
    deadline = time.monotonic() + 120
    while True:
        failures: list[KafkaException] = []

        def do(failures: list[KafkaException] = failures) -> None:
            try:
                step()
            except KafkaException as failure:
                failures.append(failure)

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        thread.join(60)
        if thread.is_alive():
            raise Hung
        if not failures:
            return
        if not failures[0].args[0].retriable() or time.monotonic() > deadline:
            raise failures[0]


def _until_done(step: Callable[[], Any]) -> Any:
    """Repeat a step until it succeeds, for two minutes."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return step()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


ROLES = {"producer": produce, "consumer": consume, "member": be_member, "copier": copy}


def main() -> None:
    role, options = sys.argv[1], json.loads(sys.argv[2])
    history = Writer(
        Path(options["file"]),
        options["client"],
        role,
        **{k: v for k, v in options.items() if k not in ("file", "client")},
    )
    commands = Commands()
    try:
        ROLES[role](options, history, commands)
    except Exception as failure:
        history("error", error=f"{type(failure).__name__}: {failure}")
    history.close()
    os._exit(0)  # do not wait for clients that hang


if __name__ == "__main__":
    main()
