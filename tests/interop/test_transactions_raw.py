"""A transaction coordinator answers like Kafka 3.9, request by request, in every version.

Run against Apache Kafka itself with KAFKAPY_INTEROP_BROKER=kafka.
"""

import struct
from typing import Any

import pytest

from kafkapy._ext.batch import BatchHeader
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from kafkapy.record.batch import records_of
from kafkapy.record.records import Record
from tests.harness import brokers
from tests.harness.batches import iter_batches
from tests.harness.raw import Connection
from tests.harness.wire import Producer, Wire

NOBODY = Producer(123_456_789, 0)


def versions(api: Api, last: int | None = None) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(api.min_version, (api.max_version if last is None else last) + 1))


def ended(wire: Wire, name: str, producer: Producer, commit: bool = True) -> None:
    assert wire.end(name, producer, commit) == Errors.NONE
    wire.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")


# --- InitProducerId


@versions(apis.INIT_PRODUCER_ID)
def test_each_client_of_an_id_gets_the_next_epoch(wire: Wire, name: str, version: int) -> None:
    first = wire.producer(name)
    assert first.epoch == 0
    assert wire.init(name, version=version) == Producer(first.id, 1)
    assert wire.producer(f"{name}-another").id != first.id


@versions(apis.INIT_PRODUCER_ID)
def test_a_time_out_must_be_within_bounds(wire: Wire, name: str, version: int) -> None:
    wire.producer("any")
    for timeout_ms in (0, -1, 900_001, 2_147_483_647):
        assert wire.init(name, timeout_ms, version=version) == Errors.INVALID_TRANSACTION_TIMEOUT
    assert isinstance(wire.init(name, 900_000, version=version), Producer)


@versions(apis.INIT_PRODUCER_ID)
def test_an_empty_id_is_refused(wire: Wire, version: int) -> None:
    assert wire.init("", version=version) == Errors.INVALID_REQUEST


def test_half_a_producer_is_refused(wire: Wire, name: str) -> None:
    for half in (Producer(5, -1), Producer(-1, 5)):
        assert wire.init(name, producer=half) == Errors.INVALID_REQUEST
        assert wire.init(None, producer=half) == Errors.INVALID_REQUEST


def test_a_producer_that_initializes_again_is_bumped_once(wire: Wire, name: str) -> None:
    first = wire.producer(name)
    assert wire.init(name, producer=first) == Producer(first.id, 1)
    assert wire.init(name, producer=first) == Producer(first.id, 1)
    assert wire.init(name, producer=Producer(first.id, 1)) == Producer(first.id, 2)
    assert wire.init(name, producer=first) == Errors.PRODUCER_FENCED


@versions(apis.INIT_PRODUCER_ID)
def test_a_replaced_producer_is_fenced(wire: Wire, name: str, version: int) -> None:
    first = wire.producer(name)
    assert isinstance(wire.init(name), Producer)
    if version >= 3:
        fenced = Errors.PRODUCER_FENCED if version >= 4 else Errors.INVALID_PRODUCER_EPOCH
        assert wire.init(name, producer=first, version=version) == fenced
        assert wire.init(name, producer=NOBODY, version=version) == fenced


def test_a_new_client_aborts_the_open_transaction(wire: Wire, topic: str, name: str) -> None:
    first = wire.producer(name)
    assert wire.add(name, first, [(topic, 0)]) == [Errors.NONE]
    assert wire.init(name) == Errors.CONCURRENT_TRANSACTIONS
    wire.wait_for_state(name, "CompleteAbort")
    assert wire.producer(name) == Producer(first.id, 2)
    assert wire.end(name, first, True) == Errors.PRODUCER_FENCED


def test_a_producer_that_initializes_again_aborts_its_open_transaction(wire: Wire, topic: str, name: str) -> None:
    first = wire.producer(name)
    assert wire.add(name, first, [(topic, 0)]) == [Errors.NONE]
    assert wire.init(name, producer=first) == Errors.CONCURRENT_TRANSACTIONS
    wire.wait_for_state(name, "CompleteAbort")
    assert wire.init(name, producer=first) == Errors.PRODUCER_FENCED  # the abort of the transaction raised the epoch


# --- AddPartitionsToTxn


@versions(apis.ADD_PARTITIONS_TO_TXN, last=3)
def test_partitions_are_added_all_or_none(wire: Wire, topic: str, name: str, version: int) -> None:
    producer = wire.producer(name)
    both = [(topic, 0), (topic, 1)]
    assert wire.add(name, producer, [*both, (topic, 2), ("unknown", 0)], version) == [
        Errors.OPERATION_NOT_ATTEMPTED,
        Errors.OPERATION_NOT_ATTEMPTED,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert wire.add(name, producer, [both[0], ("__transaction_state", 0)], version) == [
        Errors.OPERATION_NOT_ATTEMPTED,
        Errors.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert wire.describe(name).transaction_state == "Empty"
    assert wire.add(name, producer, both, version) == [Errors.NONE] * 2
    assert wire.add(name, producer, both[:1], version) == [Errors.NONE]
    (described,) = wire.describe(name).topics
    assert (described.topic, sorted(described.partitions)) == (topic, [0, 1])


@versions(apis.ADD_PARTITIONS_TO_TXN, last=3)
def test_partitions_are_not_added_for_another_producer(wire: Wire, topic: str, name: str, version: int) -> None:
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    producer = wire.producer(name)
    asked = [(topic, 0)]
    assert wire.add(name, NOBODY, asked, version) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert wire.add(f"not-{name}", producer, asked, version) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert wire.add(name, producer._replace(epoch=1), asked, version) == [fenced]
    assert wire.add("", producer, asked, version) == [Errors.INVALID_REQUEST]


@pytest.mark.parametrize("version", [4, 5])
def test_a_batch_is_answered_transaction_by_transaction(wire: Wire, topic: str, name: str, version: int) -> None:
    producer, other = wire.producer(name), wire.producer(f"{name}-other")
    p, q = (topic, 0), (topic, 1)
    assert wire.add_batch(
        (name, producer, [p], False), (f"{name}-other", other._replace(epoch=9), [p, q], False), version=version
    ) == [[Errors.NONE], [Errors.PRODUCER_FENCED] * 2]
    assert wire.add_batch(
        (name, producer, [p, q], True), (f"{name}-other", other, [p, ("unknown", 0)], True), version=version
    ) == [
        [Errors.NONE, Errors.TRANSACTION_ABORTABLE],
        [Errors.OPERATION_NOT_ATTEMPTED, Errors.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert wire.describe(f"{name}-other").transaction_state == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified(wire: Wire, topic: str, name: str, version: int) -> None:
    producer = wire.producer(name)
    p = (topic, 0)

    def verified(name: str, producer: Producer) -> list[int]:
        (codes,) = wire.add_batch((name, producer, [p], True), version=version)
        return codes

    assert verified(name, producer) == [Errors.TRANSACTION_ABORTABLE]
    wire.add(name, producer, [p])
    assert verified(name, producer) == [Errors.NONE]
    assert verified(name, producer._replace(epoch=1)) == [Errors.PRODUCER_FENCED]
    assert verified(name, NOBODY) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert verified(f"not-{name}", producer) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert verified("", producer) == [Errors.INVALID_REQUEST]
    ended(wire, name, producer)
    assert verified(name, producer) == [Errors.TRANSACTION_ABORTABLE]


# --- AddOffsetsToTxn


@versions(apis.ADD_OFFSETS_TO_TXN)
def test_the_offsets_of_a_group_are_added(wire: Wire, name: str, version: int) -> None:
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    producer = wire.producer(name)
    assert wire.add_offsets(name, NOBODY, "group", version) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert wire.add_offsets(f"not-{name}", producer, "group", version) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert wire.add_offsets(name, producer._replace(epoch=7), "group", version) == fenced
    assert wire.add_offsets("", producer, "group", version) == Errors.INVALID_REQUEST
    assert wire.add_offsets(name, producer, "group", version) == Errors.NONE
    (described,) = wire.describe(name).topics
    assert (described.topic, described.partitions) == ("__consumer_offsets", [abs(java_hash("group")) % 5])


def java_hash(text: str) -> int:
    """Return Java's String.hashCode of ASCII text."""
    found = 0
    for char in text:
        found = (31 * found + ord(char)) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


# --- EndTxn


@versions(apis.END_TXN)
def test_an_end_can_be_repeated_but_not_changed(wire: Wire, topic: str, name: str, version: int) -> None:
    producer = wire.producer(name)
    assert wire.end(name, producer, True, version) == Errors.INVALID_TXN_STATE
    assert wire.end(name, producer, False, version) == Errors.INVALID_TXN_STATE
    for commit in (True, False):
        wire.add(name, producer, [(topic, 0)])
        assert wire.end(name, producer, commit, version) == Errors.NONE
        wire.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
        assert wire.end(name, producer, commit, version) == Errors.NONE
        assert wire.end(name, producer, not commit, version) == Errors.INVALID_TXN_STATE


@versions(apis.END_TXN)
def test_only_its_producer_can_end_a_transaction(wire: Wire, topic: str, name: str, version: int) -> None:
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    old = wire.producer(name)
    producer = wire.producer(name)
    wire.add(name, producer, [(topic, 0)])
    assert wire.end(name, old, True, version) == fenced
    assert wire.end(name, producer._replace(epoch=5), True, version) == fenced
    assert wire.end(name, NOBODY, True, version) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert wire.end(f"not-{name}", producer, True, version) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert wire.end("", producer, True, version) == Errors.INVALID_REQUEST
    ended(wire, name, producer)


def test_markers_are_written_to_every_partition(wire: Wire, topic: str, name: str) -> None:
    producer = wire.producer(name)
    before = [wire.end_offset(topic, index) for index in (0, 1)]
    wire.add(name, producer, [(topic, 0), (topic, 1)])
    ended(wire, name, producer, commit=False)
    assert [wire.end_offset(topic, index) for index in (0, 1)] == [offset + 1 for offset in before]


def test_a_deleted_topic_does_not_block_the_end_of_the_transaction(wire: Wire, topic: str, name: str) -> None:
    doomed = f"{topic}-doomed"
    wire.create_topic(doomed)
    producer = wire.producer(name)
    wire.add(name, producer, [(topic, 0), (doomed, 0)])
    (answer,) = wire.call(apis.DELETE_TOPICS, 4, topic_names=[doomed], timeout_ms=30_000).responses
    assert answer.error_code == Errors.NONE
    assert wire.end(name, producer, True) == Errors.NONE
    wire.wait_for_state(name, "CompleteCommit")


# --- the log


def recorded(coordinator: brokers.Broker, name: str) -> list[tuple[BatchHeader, Record]]:
    """Return the records of a transactional id, each with the header of its batch."""
    partition = abs(java_hash(name)) % 5
    with Connection(coordinator.bootstrap) as connection:
        code, _, data = connection.fetch("__transaction_state", partition, 0)
    assert code == Errors.NONE
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    batches = [(header, record) for header in iter_batches(data) for record in records_of(data, header)]
    return [(header, record) for header, record in batches if record.key == key]


def test_every_state_is_recorded_byte_for_byte(coordinator: brokers.Broker, wire: Wire, topic: str, name: str) -> None:
    producer = wire.producer(name, timeout_ms=54_321)
    wire.add(name, producer, [(topic, 0)])
    wire.add(name, producer, [(topic, 1)])
    began = wire.describe(name).transaction_start_time_ms
    ended(wire, name, producer)
    wire.add(name, producer, [(topic, 1)])
    began_again = wire.describe(name).transaction_start_time_ms
    assert wire.init(name) == Errors.CONCURRENT_TRANSACTIONS
    wire.wait_for_state(name, "CompleteAbort")

    def partitions(*indexes: int) -> bytes:
        """Encode partitions of one topic, or no topic if there are none."""
        if not indexes:
            return struct.pack(">i", 0)
        ids = struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        return struct.pack(">ih", 1, len(topic)) + topic.encode() + ids

    null = struct.pack(">i", -1)
    expected = [
        (0, 0, null, -1),
        (0, 1, partitions(0), began),
        (0, 1, partitions(0, 1), began),
        (0, 2, partitions(0, 1), began),
        (0, 4, partitions(), began),
        (0, 1, partitions(1), began_again),
        (1, 3, partitions(1), began_again),  # no producer gets the epoch that fences
        (1, 5, partitions(), began_again),
    ]
    found = recorded(coordinator, name)
    values = [record.value for _, record in found]
    assert [value and value[:17] for value in values] == [
        struct.pack(">hqhib", 0, producer.id, epoch, 54_321, state) for epoch, state, _, _ in expected
    ]
    assert [value and value[17:-16] for value in values] == [listed for _, _, listed, _ in expected]
    assert [value and struct.unpack(">q", value[-8:])[0] for value in values] == [start for *_, start in expected]
    updated = [struct.unpack(">q", value[-16:-8])[0] for value in values if value]
    assert updated == sorted(updated)
    for header, record in found:
        assert (header.magic, header.attributes, header.count) == (2, 0, 1)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert record.headers == ()


# --- time


def test_a_transaction_that_is_open_too_long_is_aborted(wire: Wire, topic: str, name: str) -> None:
    producer = wire.producer(name, timeout_ms=100)
    wire.add(name, producer, [(topic, 0)])
    state = wire.wait_for_state(name, "CompleteAbort")
    assert (state.producer_id, state.producer_epoch) == (producer.id, 1)
    assert wire.end(name, producer, False) == Errors.PRODUCER_FENCED
    assert wire.add(name, producer, [(topic, 0)]) == [Errors.PRODUCER_FENCED]
    assert wire.init(name, producer=producer) == Errors.PRODUCER_FENCED
    assert wire.init(name) == Producer(producer.id, 2)


# --- describing and listing


def test_transactions_are_described(wire: Wire, topic: str, name: str) -> None:
    producer = wire.producer(name, timeout_ms=54_321)
    state = wire.describe(name)
    assert (state.error_code, state.transaction_state, state.topics) == (Errors.NONE, "Empty", [])
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (54_321, -1)
    assert Producer(state.producer_id, state.producer_epoch) == producer
    wire.add(name, producer, [(topic, 1)])
    state = wire.describe(name)
    assert (state.transaction_state, state.transaction_start_time_ms > 0) == ("Ongoing", True)
    unknown = wire.describe(f"not-{name}")
    assert unknown.error_code == Errors.TRANSACTIONAL_ID_NOT_FOUND
    assert wire.describe("").error_code == Errors.INVALID_REQUEST
    ended(wire, name, producer)


@versions(apis.LIST_TRANSACTIONS)
def test_transactions_are_listed(wire: Wire, topic: str, name: str, version: int) -> None:
    producer, idle = wire.producer(name), wire.producer(f"{name}-idle")
    wire.add(name, producer, [(topic, 1)])

    def listed(**filters: Any) -> dict[str, str]:
        fields: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = wire.call(apis.LIST_TRANSACTIONS, version, **fields)
        assert answer.error_code == Errors.NONE
        assert answer.unknown_state_filters == [one for one in fields["state_filters"] if one == "Nonsense"]
        return {
            one.transactional_id: one.transaction_state
            for one in answer.transaction_states
            if one.transactional_id.startswith(name)
        }

    both = {name: "Ongoing", f"{name}-idle": "Empty"}
    assert listed() == both
    assert listed(state_filters=["Ongoing", "Nonsense"]) == {name: "Ongoing"}
    assert listed(state_filters=["Nonsense"]) == {}
    assert listed(state_filters=["PrepareCommit", "Dead"]) == {}
    assert listed(producer_id_filters=[idle.id, NOBODY.id]) == {f"{name}-idle": "Empty"}
    assert listed(producer_id_filters=[idle.id], state_filters=["Ongoing"]) == {}
    if version >= 1:
        assert listed(duration_filter=0, state_filters=["Ongoing"]) == {name: "Ongoing"}
        assert listed(duration_filter=1_000_000) == {
            f"{name}-idle": "Empty"
        }  # without a start time, it counts as begun long ago
    ended(wire, name, producer)
