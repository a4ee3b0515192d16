"""Decoders for the records of `__consumer_offsets` and `__transaction_state`. Their text equals the output of Kafka's
`DumpLogSegments` with `--offsets-decoder` and `--transaction-log-decoder`, character for character."""

import re
from typing import Any

from kafkapy.coordinator import consumer_group_records, offset_records
from kafkapy.coordinator.transaction_records import EMPTY, TransactionState, decode_key, decode_state
from kafkapy.errors import KafkaError, ProtocolError
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, PROTOCOL_TYPE, SUBSCRIPTION
from kafkapy.protocol.versioned import VersionedMessage, version_of
from kafkapy.record.records import Record
from kafkapy.tools.log.decoders.values import Shown, compact

# The key's and the value's message by record type, which is the version of the key.
_MESSAGES: dict[int, tuple[VersionedMessage, VersionedMessage]] = {
    0: (offset_records.OFFSET_COMMIT_KEY, offset_records.OFFSET_COMMIT_VALUE),
    1: (offset_records.OFFSET_COMMIT_KEY, offset_records.OFFSET_COMMIT_VALUE),
    2: (offset_records.GROUP_METADATA_KEY, offset_records.GROUP_METADATA_VALUE),
    **consumer_group_records.BY_TYPE,
}

_ESCAPE = re.compile(r"\\(?:\\|u00[0-9a-f]{2})")


class OffsetsDecoder:
    """A Decoder for the records of `__consumer_offsets`: committed offsets and group metadata."""

    def text(self, record: Record) -> Shown:
        try:
            key, value = self._decode(record)
        except _UnknownType as error:
            return Shown(f"Unknown record type {error.type} at offset {record.offset}, skipping.", None)
        except (KafkaError, ProtocolError) as error:
            return Shown(f"Error at offset {record.offset}, skipping. {error}", None)
        return Shown(_jackson(key), "<DELETE>" if value is None else _jackson(value))

    def objects(self, record: Record) -> Shown:
        try:
            return Shown(*self._decode(record))
        except _UnknownType as error:
            raise ValueError(f"record type {error.type} is none of {', '.join(map(str, _MESSAGES))}") from error
        except (KafkaError, ProtocolError) as error:
            raise ValueError(str(error)) from error

    def _decode(self, record: Record) -> tuple[dict[str, Any], dict[str, Any] | None]:
        if record.key is None:
            raise ProtocolError("it has no key")
        record_type = version_of(record.key, "its key")
        if record_type not in _MESSAGES:
            raise _UnknownType(record_type)
        key_message, value_message = _MESSAGES[record_type]
        _, key = key_message.decode(record.key)
        shown = {"type": str(record_type), "data": key_message.as_json(key, record_type)}
        if record.value is None:
            return shown, None
        version, value = value_message.decode(record.value)
        data = value_message.as_json(value, version)
        if value_message is offset_records.GROUP_METADATA_VALUE and value.protocol_type == PROTOCOL_TYPE:
            for member, fields in zip(value.members, data["members"], strict=True):
                _replace(fields, "subscription", SUBSCRIPTION, member.subscription)
                _replace(fields, "assignment", ASSIGNMENT, member.assignment)
        return shown, {"version": str(version), "data": data}


class TransactionsDecoder:
    """A Decoder for the records of `__transaction_state`: the states of transactional ids."""

    def text(self, record: Record) -> Shown:
        try:
            if record.key is None:
                raise ProtocolError("it has no key")
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                return Shown(f"unknown::version={version_of(record.key, 'its key')}", None)
            key = f"transaction_metadata::transactionalId={transactional_id}"
            if record.value is None:
                return Shown(key, "<DELETE>")
            state = decode_state(record.value)
        except (KafkaError, ProtocolError) as error:
            return Shown(f"Error at offset {record.offset}, skipping. {error}", None)
        partitions = ",".join(f"{topic}-{number}" for topic, number in _as_scala_iterates(state))
        return Shown(
            key,
            f"producerId:{state.producer_id},producerEpoch:{state.producer_epoch},state={state.state_name},"
            f"partitions=[{partitions}],txnLastUpdateTimestamp={state.last_update_ms},"
            f"txnTimeoutMs={state.timeout_ms}",
        )

    def objects(self, record: Record) -> Shown:
        try:
            if record.key is None:
                raise ProtocolError("it has no key")
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                raise ProtocolError(f"its key has version {version_of(record.key, 'its key')}, and 0 is the last known")
            state = None if record.value is None else decode_state(record.value)
        except (KafkaError, ProtocolError) as error:
            raise ValueError(str(error)) from error
        return Shown({"transactionalId": transactional_id}, None if state is None else _state_object(state))


class _UnknownType(Exception):
    """The error for a record type that this decoder does not know. Later versions of Kafka have more types."""

    def __init__(self, record_type: int) -> None:
        super().__init__(record_type)
        self.type = record_type


def _replace(fields: dict[str, Any], name: str, message: VersionedMessage, data: bytes) -> None:
    """Replace the bytes in `fields[name]`, a member's subscription or assignment, by their decoded content. Bytes that
    are not in the consumer protocol stay in base64."""
    try:
        version, found = message.decode(data)
    except (KafkaError, ProtocolError):
        return
    fields[name] = message.as_json(found, version)


def _jackson(value: Any) -> str:
    """Return the value as JSON text as Java's Jackson library writes it: with upper-case digits in escapes."""
    return _ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), compact(value))


def _state_object(state: TransactionState) -> dict[str, Any]:
    return {
        "producerId": state.producer_id,
        "producerEpoch": state.producer_epoch,
        "state": state.state_name,
        "partitions": [{"topic": topic, "partitions": list(ids)} for topic, ids in state.partitions],
        "txnLastUpdateTimestamp": state.last_update_ms,
        "txnStartTimestamp": state.start_ms if state.state != EMPTY or state.start_ms >= 0 else None,
        "txnTimeoutMs": state.timeout_ms,
    }


def _as_scala_iterates(state: TransactionState) -> list[tuple[str, int]]:
    """Return the partitions of a transaction in the iteration order of scala.collection.mutable.HashSet, in which Kafka
    prints them.

    The set is a hash table with chains. The low bits of the hash choose the chain, which is sorted by the hash. The
    table doubles when it is three quarters full. More than four partitions of one topic are added as an immutable set,
    for which the table grows beforehand.
    """
    buckets = 16
    found: dict[tuple[str, int], int] = {}
    for topic, ids in state.partitions:
        several = len(set(ids)) > 4
        if several:
            wanted = int((len(set(ids)) + 1) / 0.75)
            while buckets < wanted:
                buckets *= 2
        for number in ids:
            if not several and len(found) + 1 >= buckets * 3 // 4:
                buckets *= 2
            found.setdefault((topic, number), _scala_hash(topic, number))
    return sorted(found, key=lambda one: (found[one] & (buckets - 1), found[one]))


def _scala_hash(topic: str, partition: int) -> int:
    """Return the hash of a TopicPartition in Scala's HashSet, an int32: Java's hash with the high half XORed into the
    low half."""
    name = 0
    encoded = topic.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        name = name * 31 + (encoded[at] << 8 | encoded[at + 1]) & 0xFFFFFFFF
    total = ((31 + partition) * 31 + name) & 0xFFFFFFFF
    total ^= total >> 16
    return total - (1 << 32) if total >> 31 else total
