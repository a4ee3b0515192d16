"""The same things as JSON objects, one a line: a batch with its records, an index entry, a producer, a problem."""

import base64
import re
from typing import Any

from kafkapy.record.batch import Record
from kafkapy.record.control import decode
from kafkapy.tools.log.dump_text import TIMESTAMP_TYPES, codec_name
from kafkapy.tools.log.segment_files import AbortedTransaction, ProducerEntry, StoredBatch

Json = dict[str, Any]

_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def batch_object(file: str, number: int, batch: StoredBatch, *, valid: bool) -> Json:
    """`number` counts the batches of the file from 0; `crc` is as stored, `valid` says whether it is right."""
    head = batch.header
    return {
        "type": "batch",
        "file": file,
        "batch": number,
        "position": batch.position,
        "size": head.size,
        "magic": head.magic,
        "codec": codec_name(head.codec),
        "baseOffset": head.base_offset,
        "lastOffset": head.last_offset,
        "crc": head.crc,
        "valid": valid,
        "maxTimestamp": head.max_timestamp,
        "leaderEpoch": head.leader_epoch,
        "producerId": head.producer_id,
        "producerEpoch": head.producer_epoch,
        "baseSequence": head.base_sequence,
        "transactional": bool(head.is_transactional),
        "control": bool(head.is_control),
        "deleteHorizonMs": head.delete_horizon_ms,
        "count": head.count,
        "timestampType": TIMESTAMP_TYPES[head.timestamp_type],
    }


def record_object(batch: StoredBatch, record: Record, *, contents: bool) -> Json:
    """Raises ValueError for a control record that is none."""
    result: Json = {"offset": record.offset, "timestamp": record.timestamp}
    if contents:
        result["key"] = readable(record.key)
        result["value"] = readable(record.value)
    else:
        result["keySize"] = -1 if record.key is None else len(record.key)
        result["valueSize"] = -1 if record.value is None else len(record.value)
    result["sequence"] = record.sequence
    if contents:
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


def readable(data: bytes | str | None) -> str | Json | None:
    """Text in UTF-8 as a string, other bytes (control characters among them) as {"base64": ...}, null as null."""
    if data is None or isinstance(data, str):
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if _NOT_TEXT.search(text):
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text
