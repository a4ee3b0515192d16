"""How a stored batch, record or index entry reads as text: the lines of Kafka's `DumpLogSegments`, character for
character, so that scripts which read that tool's output read ours."""

import codecs

from kafkapy.record.batch import Record
from kafkapy.record.compression import NAMES
from kafkapy.record.control import decode
from kafkapy.tools.log.segment_files import AbortedTransaction, ProducerEntry, StoredBatch

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def codec_name(codec: int) -> str:
    return NAMES[codec] if codec < len(NAMES) else f"unknown({codec})"


def batch_line(batch: StoredBatch, *, valid: bool) -> str:
    head = batch.header
    return (
        f"baseOffset: {head.base_offset} lastOffset: {head.last_offset} count: {head.count}"
        f" baseSequence: {head.base_sequence} lastSequence: {head.last_sequence}"
        f" producerId: {head.producer_id} producerEpoch: {head.producer_epoch}"
        f" partitionLeaderEpoch: {head.leader_epoch} isTransactional: {_java(head.is_transactional)}"
        f" isControl: {_java(head.is_control)} deleteHorizonMs: {_optional(head.delete_horizon_ms)}"
        f" position: {batch.position} {TIMESTAMP_TYPES[head.timestamp_type]}: {head.max_timestamp}"
        f" size: {head.size} magic: {head.magic} compresscodec: {codec_name(head.codec)}"
        f" crc: {head.crc} isvalid: {_java(valid)}"
    )


def record_line(batch: StoredBatch, record: Record, *, metadata: bool, contents: bool) -> str:
    """Raises ValueError for a control record that is none."""
    line = "|"
    if metadata:
        keys = ",".join(name for name, _ in record.headers)
        line += (
            f" offset: {record.offset} {TIMESTAMP_TYPES[batch.header.timestamp_type]}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            f" sequence: {record.sequence} headerKeys: [{keys}]"
        )
        if batch.header.is_control:
            control = decode(record.key, record.value)
            if control.coordinator_epoch is None:
                line += f" controlType: {control.name}({control.type})"
            else:
                line += f" endTxnMarker: {control.name} coordinatorEpoch: {control.coordinator_epoch}"
    if not contents or batch.header.is_control:
        return line if metadata else ""
    if record.key is not None:
        line += f" key: {text(record.key)}"
    elif not metadata:
        line = ""  # Kafka's tool begins a line with the bar only before a key or metadata
    if record.value is not None:
        line += f" payload: {text(record.value)}"
    return line


def aborted_line(entry: AbortedTransaction) -> str:
    return (
        f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset}"
        f" lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
    )


def producer_line(entry: ProducerEntry) -> str:
    first = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: {_optional(first if first >= 0 else None)} lastTimestamp: {entry.timestamp} "
    )
    if entry.last_offset < 0:
        return line  # with the blank at its end, as Kafka's tool leaves it
    return line + (
        f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
        f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def text(data: bytes) -> str:
    """Bytes as Java's UTF-8 decoder shows them, one U+FFFD for each malformed piece."""
    return data.decode("utf-8", "kafkapy-java")


def _java_malformed(error: UnicodeError) -> tuple[str, int]:
    """Java counts an encoded surrogate (ED A0..BF and its third byte) as one malformed piece, Python as up to three."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        whole = at + 2 < len(data) and data[at + 2] & 0xC0 == 0x80
        return "\ufffd", at + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error("kafkapy-java", _java_malformed)


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
