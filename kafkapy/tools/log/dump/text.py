"""Formats stored batches, records and index entries as the lines of Kafka's `DumpLogSegments`, character for character,
for scripts that parse that tool's output."""

from kafkapy._ext.batch import BatchHeader
from kafkapy.log.offline.index_files import AbortedTransaction, ProducerEntry
from kafkapy.log.offline.stored_batches import StoredBatch
from kafkapy.record.compression import NAMES
from kafkapy.record.control import decode
from kafkapy.record.records import Record
from kafkapy.tools.log.decoders.values import Shown

# None: messages of format 0 have no timestamps.
TIMESTAMP_TYPES = {None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def codec_name(codec: int) -> str:
    return NAMES[codec] if codec < len(NAMES) else f"unknown({codec})"


def batch_line(batch: StoredBatch, *, valid: bool) -> str:
    head = batch.header
    if isinstance(head, BatchHeader):
        line = (
            f"baseOffset: {head.base_offset} lastOffset: {head.last_offset} count: {head.count}"
            f" baseSequence: {head.base_sequence} lastSequence: {head.last_sequence}"
            f" producerId: {head.producer_id} producerEpoch: {head.producer_epoch}"
            f" partitionLeaderEpoch: {head.leader_epoch} isTransactional: {_java(head.is_transactional)}"
            f" isControl: {_java(head.is_control)} deleteHorizonMs: {_optional(head.delete_horizon_ms)}"
        )
    else:
        line = f"offset: {head.last_offset}"
    return line + (
        f" position: {batch.position} {TIMESTAMP_TYPES[head.timestamp_type]}: {head.max_timestamp}"
        f" size: {head.size} magic: {head.magic} compresscodec: {codec_name(head.codec)}"
        f" crc: {head.crc} isvalid: {_java(valid)}"
    )


def record_line(
    batch: StoredBatch, record: Record, shown: Shown | None, checksum: tuple[bool, int] | None, *, metadata: bool
) -> str:
    """Return the line for a record. `shown` has the decoded key and value, or is None to leave them out. `checksum` is
    an element of StoredBatch.checksums() in formats 0 and 1, else None. Raises ValueError for an invalid control
    record."""
    line = "|"
    if metadata:
        line += (
            f" offset: {record.offset} {TIMESTAMP_TYPES[batch.header.timestamp_type]}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if checksum is not None:
            line += f" isValid: {_java(checksum[0])} crc: {checksum[1]}}}"  # the brace is Kafka's
        else:
            keys = ",".join(name for name, _ in record.headers)
            line += f" sequence: {record.sequence} headerKeys: [{keys}]"
        if batch.header.is_control:
            control = decode(record.key, record.value)
            if control.coordinator_epoch is None:
                line += f" controlType: {control.name}({control.type})"
            else:
                line += f" endTxnMarker: {control.name} coordinatorEpoch: {control.coordinator_epoch}"
    if shown is None or batch.header.is_control:
        return line if metadata else ""
    if shown.key is not None:
        line += f" key: {shown.key}"
    elif not metadata:
        line = ""  # Kafka's tool begins a line with a bar only if metadata or a key follows
    if shown.value is not None:
        line += f" payload: {shown.value}"
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
        return line  # Kafka's tool leaves a blank at the end, too
    return line + (
        f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
        f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
