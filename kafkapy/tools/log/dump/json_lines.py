"""Converts stored batches, records, index entries and producer entries to JSON objects, which are printed one per
line."""

from typing import Any

from kafkapy._ext.batch import BatchHeader
from kafkapy.log.offline.index_files import AbortedTransaction, ProducerEntry
from kafkapy.log.offline.stored_batches import StoredBatch
from kafkapy.record.compression import NONE
from kafkapy.record.control import decode
from kafkapy.record.records import Record
from kafkapy.tools.log.decoders.values import Shown, readable
from kafkapy.tools.log.dump.text import TIMESTAMP_TYPES, codec_name

Json = dict[str, Any]


def batch_object(file: str, number: int, batch: StoredBatch, *, valid: bool) -> Json:
    """Return a batch as a JSON object. `number` counts the batches of the file from 0; `crc` in the object is the
    stored checksum, and `valid` says if it is correct.

    Fields that the message format does not have are left out. `baseOffset` is null for a compressed wrapper of formats
    0 and 1, whose base offset is known only after decompression.
    """
    head = batch.header
    shown: Json = {
        "type": "batch",
        "file": file,
        "batch": number,
        "position": batch.position,
        "size": head.size,
        "magic": head.magic,
        "codec": codec_name(head.codec),
        "baseOffset": None,
        "lastOffset": head.last_offset,
        "crc": head.crc,
        "valid": valid,
    }
    if head.magic > 0:
        shown["maxTimestamp"] = head.max_timestamp
    if isinstance(head, BatchHeader):
        shown |= {
            "baseOffset": head.base_offset,
            "leaderEpoch": head.leader_epoch,
            "producerId": head.producer_id,
            "producerEpoch": head.producer_epoch,
            "baseSequence": head.base_sequence,
            "transactional": bool(head.is_transactional),
            "control": bool(head.is_control),
            "deleteHorizonMs": head.delete_horizon_ms,
            "count": head.count,
        }
    elif head.codec == NONE:
        shown["baseOffset"] = head.offset
    shown["timestampType"] = None if head.timestamp_type is None else TIMESTAMP_TYPES[head.timestamp_type]
    return shown


def record_object(batch: StoredBatch, record: Record, shown: Shown | None) -> Json:
    """Return a record as a JSON object. `shown` has the decoded key and value; if it is None, the object has only their
    sizes. Raises ValueError for a control record with an invalid key or value."""
    result: Json = {"offset": record.offset, "timestamp": record.timestamp if batch.header.magic > 0 else None}
    if shown is not None:
        result["key"], result["value"] = shown
    else:
        result["keySize"] = -1 if record.key is None else len(record.key)
        result["valueSize"] = -1 if record.value is None else len(record.value)
    if batch.header.magic < 2:
        return result
    result["sequence"] = record.sequence
    if shown is not None:
        result["headers"] = [[readable(key), readable(value)] for key, value in record.headers]
    else:
        result["headerKeys"] = [readable(key) for key, _ in record.headers]
    if batch.header.is_control:
        control = decode(record.key, record.value)
        result["controlType"] = control.name
        if control.coordinator_epoch is not None:
            result["coordinatorEpoch"] = control.coordinator_epoch
    return result


def aborted_object(file: str, entry: AbortedTransaction) -> Json:
    return {
        "type": "abortedTransaction",
        "file": file,
        "version": entry.version,
        "producerId": entry.producer_id,
        "firstOffset": entry.first_offset,
        "lastOffset": entry.last_offset,
        "lastStableOffset": entry.last_stable_offset,
    }


def producer_object(file: str, entry: ProducerEntry) -> Json:
    known = entry.last_offset >= 0
    first = entry.current_txn_first_offset
    return {
        "type": "producer",
        "file": file,
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": first if first >= 0 else None,
        "lastTimestamp": entry.timestamp,
        "firstSequence": entry.first_sequence if known else None,
        "lastSequence": entry.last_sequence if known else None,
        "lastOffset": entry.last_offset if known else None,
        "offsetDelta": entry.offset_delta if known else None,
    }
