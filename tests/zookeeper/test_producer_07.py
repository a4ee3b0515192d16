"""The original producer with a broker of Kafka 0.7, from ZooKeeper or a list of brokers: codecs, refused messages."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkapy.client.original.partitioners import DefaultPartitioner
from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_hooks import CallbackHandler
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage, KeyedMessage
from kafkapy.client.original.simple.simple_consumer import SimpleConsumer
from kafkapy.log.offline.sets_07 import sets_of_07
from kafkapy.record.legacy import iter_entries, messages_of
from kafkapy.record.records import Record
from tests.harness.broker_07 import BROKER_ID, Broker07, start_broker_07
from tests.harness.waiting import eventually
from tests.harness.zookeeper import PATIENT_MS

Open = Callable[..., Producer]


@pytest.fixture
def produce(connect: str, broker_07: Broker07) -> Iterator[Open]:
    opened: list[Producer] = []

    def opener(callback: CallbackHandler | None = None, **settings: str) -> Producer:
        given = {"zk.connect": connect, "zk.sessiontimeout.ms": str(PATIENT_MS), "retry.backoff.ms": "20"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        if "broker.list" in given:
            del given["zk.connect"]
        opened.append(Producer(given, callback_handler=callback))
        return opened[-1]

    yield opener
    for producer in opened:
        producer.close()


def stored(directory: Path, partition: str) -> list[bytes | None]:
    """Return the values of the messages in the broker's segments."""
    found: list[Record] = []
    for path in sorted((directory / partition).glob("*.kafka")):
        for data, _ in sets_of_07(path, 0):
            for header in iter_entries(data):
                found += messages_of(data, header)  # type: ignore[arg-type]
    return [record.value for record in found]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_messages_are_stored_when_send_returns(produce: Open, data_07: Path, broker_07: Broker07, codec: str) -> None:
    values = [b"%d " % number * 20 for number in range(50)]
    produce(compression_codec=codec).send([KeyedMessage("none", value) for value in values])
    assert stored(data_07, "none-0")[-50:] == values
    with SimpleConsumer("127.0.0.1", broker_07.port, broker_version="0.7") as consumer:
        messages = consumer.fetch("none", 0, 0, 1 << 20)
        assert [message.value for _, message in messages][-50:] == values


def test_keys_choose_among_all_partitions(produce: Open, data_07: Path) -> None:
    keys = [b"key %d" % number for number in range(20)]
    produce().send([KeyedMessage("two-partitions", key, key) for key in keys])
    chosen = {key: DefaultPartitioner({}).partition(key, 2) for key in keys}
    for partition in (0, 1):
        mine = [key for key in keys if chosen[key] == partition]
        assert mine
        assert stored(data_07, f"two-partitions-{partition}")[-len(mine) :] == mine


def test_a_new_topic_is_created_and_then_has_all_its_partitions(produce: Open, data_07: Path, zk: KazooClient) -> None:
    producer = produce()
    producer.send(KeyedMessage("sent", b"first", b"a key"))
    # As in 0.7, each broker counts as having one partition until the topic is registered.
    assert stored(data_07, "sent-0") == [b"first"]
    eventually(lambda: zk.exists(f"/brokers/topics/sent/{BROKER_ID}"))

    def both() -> bool:
        producer.send([KeyedMessage("sent", b"more", b"%d" % number) for number in range(10)])
        return bool(stored(data_07, "sent-1"))

    eventually(both)


def test_with_a_list_of_brokers_the_broker_chooses_the_partition(
    produce: Open, data_07: Path, broker_07: Broker07
) -> None:
    producer = produce(broker_list=f"8:127.0.0.1:{broker_07.port}", kafkapy_broker_version="0.7")
    for number in range(40):
        producer.send(KeyedMessage("sent", b"%d" % number, b"key"))
    values = stored(data_07, "sent-0") + stored(data_07, "sent-1")
    assert sorted(values) == sorted(b"%d" % number for number in range(40))  # type: ignore[type-var]


class Lost(CallbackHandler):
    def __init__(self) -> None:
        self.values: list[object] = []

    def lost(self, messages: object, reason: Exception) -> None:
        self.values += [message.message for message in messages]  # type: ignore[attr-defined]


def test_messages_that_a_broker_would_drop_silently_raise_an_error(produce: Open, data_07: Path) -> None:
    callback = Lost()
    producer = produce(callback, max_message_size="100")
    with pytest.raises(
        FailedToSendMessage, match=r"2 messages for none not stored: .* 101 bytes .* max\.message\.size, 100"
    ):
        producer.send(KeyedMessage("none", b"x" * 101), KeyedMessage("none", b"kept"), KeyedMessage("none", None))
    assert callback.values == [b"x" * 101, None]
    assert stored(data_07, "none-0")[-1] == b"kept"


def test_a_compressed_message_that_is_too_large_is_split(produce: Open, data_07: Path) -> None:
    values = [b"%032x" % (number**9) for number in range(64)]
    produce(max_message_size="400", compression_codec="gzip").send([KeyedMessage("none", value) for value in values])
    assert stored(data_07, "none-0")[-64:] == values


def test_a_broker_that_stops_and_starts_again_is_used_again(
    produce: Open, data_07: Path, connect: str, broker_07: Broker07
) -> None:
    callback = Lost()
    producer = produce(callback, message_send_max_retries="0", request_timeout_ms="1000")
    producer.send(KeyedMessage("none", b"before"))
    broker_07.stop()
    with pytest.raises(FailedToSendMessage):
        producer.send(KeyedMessage("none", b"lost"))
    again = start_broker_07(data_07, connect, {"two-partitions": 2}, port=broker_07.port, kind=type(broker_07))
    try:
        producer.send(KeyedMessage("none", b"after"))
        assert stored(data_07, "none-0")[-2:] == [b"before", b"after"]
    finally:
        again.stop()
    assert (callback.values, producer.stats["failed"]) == ([b"lost"], 1)


@pytest.mark.parametrize("wrong", [{"enable_idempotence": "true"}, {"compression_codec": "lz4"}])
def test_settings_that_0_7_does_not_have_are_refused(produce: Open, wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"brokers of Kafka 0\.7"):
        produce(**wrong)
