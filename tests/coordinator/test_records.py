"""Records of the internal topics are encoded and decoded like those of Kafka 3.9.1, 0.10.2.2 and 0.8.2.2."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator import consumer_group_records
from kafkapy.coordinator import offset_records as offsets
from kafkapy.coordinator import transaction_records as transactions
from kafkapy.errors import ProtocolError, UnsupportedVersion
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kafkapy.record.batch import records_of
from kafkapy.record.records import Record
from tests.harness.batches import iter_batches
from tests.harness.examples import examples
from tests.harness.offset_records import decode_offset, encode_offset, encode_offset_key

GOLDEN = Path(__file__).parents[1] / "data" / "golden"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def stored(topic: str) -> Iterator[Record]:
    """Return every data record of the topic in the directories of Kafka 3.9.1."""
    logs = sorted(GOLDEN.glob(f"kafka-3.9.1-*/data/{topic}-*/*.log"))
    assert logs
    for log in logs:
        data = log.read_bytes()
        for batch in iter_batches(data):
            if not batch.is_control:
                yield from records_of(data, batch)


def test_keys_and_values_of_kafka_are_encoded_to_the_same_bytes() -> None:
    kinds = {"offset": 0, "group": 0, "deleted": 0}
    for record in stored("__consumer_offsets"):
        assert record.key is not None
        key = offsets.decode_key(record.key)
        if isinstance(key, offsets.OffsetKey):
            assert encode_offset_key(key) == record.key
            if record.value is not None:
                assert encode_offset(decode_offset(record.value)) == record.value
                kinds["offset"] += 1
        else:
            assert isinstance(key, offsets.GroupKey)
            assert offsets.encode_group_key(key.group) == record.key
            if record.value is not None:
                group = offsets.decode_group(record.value)
                fields = (group.protocol_type, group.generation, group.protocol, group.leader)
                again = offsets.encode_group(*fields, group.current_state_timestamp, group.members)
                assert again == record.value
                kinds["group"] += 1
        kinds["deleted"] += record.value is None
    assert min(kinds.values()) > 1


def test_a_member_of_the_new_consumer_protocol_is_read() -> None:
    """The value is as Kafka's group coordinators write it, without and with the field for classic members."""
    _, value = consumer_group_records.BY_TYPE[5]
    member = bytes.fromhex("0000  00 00 0263 032f68 02 0274 00 00007530 00")
    fields = {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/h",
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 30000,
        "serverAssignor": None,
    }
    _, before = value.decode(member + bytes.fromhex("00"))
    assert value.as_json(before, 0) == fields
    _, after = value.decode(member + bytes.fromhex("01 00 01 00"))
    assert value.as_json(after, 0) == {**fields, "classicMemberMetadata": None}


def test_subscriptions_and_assignments_of_kafka_are_encoded_to_the_same_bytes() -> None:
    seen = 0
    for record in stored("__consumer_offsets"):
        assert record.key is not None
        if record.value is None or not isinstance(offsets.decode_key(record.key), offsets.GroupKey):
            continue
        for member in offsets.decode_group(record.value).members:
            for codec, data in ((SUBSCRIPTION, member.subscription), (ASSIGNMENT, member.assignment)):
                version, message = codec.decode(data)
                assert codec.encode(message, version) == data
                seen += 1
    assert seen > 4


def test_transaction_states_of_kafka_are_encoded_to_the_same_bytes() -> None:
    states = set()
    for record in stored("__transaction_state"):
        assert record.key is not None
        assert record.value is not None
        transactional_id = transactions.decode_key(record.key)
        assert transactional_id is not None
        assert transactions.encode_key(transactional_id) == record.key
        state = transactions.decode_state(record.value)
        assert transactions.encode_state(state) == record.value
        states.add(state.state_name)
    assert states >= {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


@settings(max_examples=examples(50))
@given(texts, texts, int32s, int64s, int32s, texts, int64s)
def test_commits_survive_encoding_and_decoding(
    group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, at: int
) -> None:
    key = offsets.OffsetKey(group, topic, partition)
    assert offsets.decode_key(encode_offset_key(key)) == key
    committed = offsets.CommittedOffset(offset, epoch, metadata, at)
    assert decode_offset(encode_offset(committed)) == committed
    expiring = committed._replace(leader_epoch=-1, expire_timestamp=at if at != -1 else 0)
    assert encode_offset(expiring)[:2] == b"\0\1"
    assert decode_offset(encode_offset(expiring)) == expiring


@settings(max_examples=examples(50))
@given(
    st.builds(
        transactions.TransactionState,
        int64s,
        int16s,
        int32s,
        st.integers(1, len(transactions.STATES) - 1),
        st.lists(st.tuples(texts, st.lists(int32s, max_size=3).map(tuple)), max_size=3).map(tuple),
        int64s,
        int64s,
    )
)
def test_transaction_states_survive_encoding_and_decoding(state: transactions.TransactionState) -> None:
    assert transactions.decode_state(transactions.encode_state(state)) == state
    empty = state._replace(state=transactions.EMPTY, partitions=())
    assert transactions.decode_state(transactions.encode_state(empty)) == empty


@settings(max_examples=examples(100))
@given(st.binary(max_size=60))
def test_malformed_records_raise_protocol_errors_only(data: bytes) -> None:
    for decode in (
        offsets.decode_key,
        decode_offset,
        offsets.decode_group,
        transactions.decode_key,
        transactions.decode_state,
    ):
        try:
            decode(data)
        except (ProtocolError, UnsupportedVersion):
            pass


def test_keys_of_later_record_types_are_recognized() -> None:
    assert offsets.decode_key(b"\0\3\0\1g") == offsets.UnknownKey(3)
    assert transactions.decode_key(b"\0\1\0\1t") is None


def test_an_empty_transaction_with_partitions_is_refused() -> None:
    state = transactions.TransactionState(1, 0, 1, transactions.EMPTY, (("t", (0,)),), 0, 0)
    with pytest.raises(ValueError, match="cannot have partitions"):
        transactions.encode_state(state)


def test_later_versions_of_a_subscription_are_read_as_the_last_one() -> None:
    data = SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a"], rack_id="r"), 3)
    version, message = SUBSCRIPTION.decode(b"\0\x09" + data[2:] + b"what version 9 has more")
    assert (version, message.topics, message.rack_id) == (9, ["a"], "r")
    assert SUBSCRIPTION.as_json(message, version)["rackId"] == "r"
