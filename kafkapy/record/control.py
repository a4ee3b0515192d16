"""Control records, such as the markers that end a transaction (KIP-98; Kafka's ControlRecordType,
EndTransactionMarker).

The key is version (int16) and type (int16); the value of a transaction marker is version (int16) and the epoch of the
coordinator that wrote it (int32). Keys and values of later versions may be longer; the additional bytes are ignored.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.crc32c import crc32c
from kafkapy.record.batch import records_of
from kafkapy.record.records import Buffer

ABORT, COMMIT = 0, 1
NAMES = {
    ABORT: "ABORT",
    COMMIT: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlRecord(NamedTuple):
    """A control record. `type` is a key of NAMES; `coordinator_epoch` is None except for transaction markers."""

    type: int
    coordinator_epoch: int | None

    @property
    def name(self) -> str:
        return NAMES.get(self.type, "UNKNOWN")


class Marker(NamedTuple):
    """A transaction marker: producer id and epoch, whether the transaction was committed, and the epoch of the
    coordinator that wrote the marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


def decode_key(key: Buffer | None) -> int:
    """Return the type (a key of NAMES) in a control record's key. Raises ValueError if the key is too short or its
    version negative."""
    if key is None or len(key) < _KEY.size:
        raise ValueError(f"a control record's key has {_KEY.size} bytes, not {0 if key is None else len(key)}")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise ValueError(f"a control record's key has the version {version}")
    return int(kind)


def decode(key: Buffer | None, value: Buffer | None) -> ControlRecord:
    """Return the ControlRecord for the key and value of a control record. Raises ValueError if one of them is not
    valid."""
    kind = decode_key(key)
    if kind not in (ABORT, COMMIT):
        return ControlRecord(kind, None)
    if value is None or len(value) < _MARKER.size:
        raise ValueError(f"a transaction marker has {_MARKER.size} bytes, not {0 if value is None else len(value)}")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise ValueError(f"a transaction marker has the version {version}")
    return ControlRecord(kind, int(epoch))


def control_record_of(buffer: Buffer, header: BatchHeader) -> ControlRecord | None:
    """Return the only record of a control batch, or None if compaction has emptied the batch. Raises ValueError."""
    records = records_of(buffer, header)
    return decode(records[0].key, records[0].value) if records else None


def encode_key(kind: int) -> bytes:
    """Return the key of a control record of type `kind`, a key of NAMES."""
    return _KEY.pack(0, kind)


def marker_batch(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Return the control batch that ends a producer's transaction in a partition. Its base offset is 0; the log assigns
    the offset when it appends the batch.

    The batch has 78 bytes and one record, as in MemoryRecords.withEndTransactionMarker.
    """
    batch = bytearray(_BATCH_SIZE)
    _BATCH.pack_into(
        batch,
        _ATTRIBUTES_AT,
        _TRANSACTIONAL_CONTROL,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        1,
        *_RECORD_HEAD,
        0,
        COMMIT if commit else ABORT,
        _VALUE_LENGTH,
        0,
        coordinator_epoch,
        0,
    )
    _FRONT.pack_into(batch, 0, 0, _BATCH_SIZE - 12, -1, 2, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return batch


_FRONT = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, checksum of all that follows
_ATTRIBUTES_AT = _FRONT.size
# Attributes, last offset delta, both timestamps, producer id and epoch, base sequence, count; then the record: length,
# attributes, timestamp delta, offset delta and key length as one byte each, the key, the value's length, the value,
# the number of headers.
_BATCH = struct.Struct(">hiqqqhii5bhhbhib")
_TRANSACTIONAL_CONTROL = 0x30
_RECORD_HEAD = (2 * 16, 0, 0, 0, 2 * _KEY.size)  # zigzag varints of small positive numbers are twice the number
_VALUE_LENGTH = 2 * _MARKER.size
_BATCH_SIZE = _ATTRIBUTES_AT + _BATCH.size
