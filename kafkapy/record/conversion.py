"""Down-conversion of stored batches for clients that know older message formats only.

Control batches are left out, because old formats have no transactions; headers are dropped; format 0 loses the
timestamps. A compressed batch becomes a wrapper with the same codec, and an uncompressed batch becomes single messages;
offsets stay. Uncompressed records before the requested offset are left out, which some clients rely on. Source: Kafka's
RecordsUtil.downConvert.
"""

from __future__ import annotations

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.entries import next_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_writer import wrap
from kafkapy._ext.transcode import KEPT, RELATIVE, convert_payload, convert_run
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import payload_of
from kafkapy.record.compression import NAMES, ZSTD, compress
from kafkapy.record.records import MAX_PAYLOAD, Buffer


def down_convert(buffer: Buffer, magic: int, first_offset: int = 0, *, max_decompressed: int = MAX_PAYLOAD) -> bytes:
    """Return the entries of `buffer`, batches or messages, for a client that knows formats up to `magic` (0 or 1). The
    result may be empty.

    Entries in formats that the client knows stay unchanged. Conversion stops at an incomplete entry. The caller limits
    memory by the size of `buffer`: besides the result, one decompressed entry is in memory at a time.
    `max_decompressed` limits the decompressed and converted bytes of an entry.

    Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, which old clients do not know; CORRUPT_MESSAGE for damaged
    entries.
    """
    parts, position = [], 0
    try:
        while True:
            part, position = convert_run(buffer, position, magic, first_offset)
            if part:
                parts.append(part)
            header = next_entry(buffer, position)
            if header is None:
                break
            parts.append(_converted(buffer, header, magic, first_offset, max_decompressed))
            position = header.next_position
    except ValueError as reason:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"records that cannot be converted: {reason}") from reason
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _converted(buffer: Buffer, header: BatchHeader | MessageHeader, magic: int, first_offset: int, limit: int) -> bytes:
    """Return one entry converted to format `magic`. `convert_run` has stopped at this entry because it is compressed or
    damaged."""
    if header.codec == 0:
        # For the first entry of a run, convert_run raises the error.
        return convert_run(buffer, header.position, magic, first_offset)[0]
    if header.codec >= ZSTD:
        name = NAMES[ZSTD] if header.codec == ZSTD else f"codec {header.codec}"
        raise KafkaError(
            Errors.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at offset {header.last_offset} is compressed with {name}, unknown in message format {magic}",
        )
    append_time = max(header.max_timestamp, -1) if header.timestamp_type == 1 else None
    converted = convert_payload(
        payload_of(buffer, header, limit) if getattr(header, "count", 1) else b"",
        header,
        magic,
        offsets=RELATIVE if magic else KEPT,
        append_time=append_time,
        limit=limit,
    )
    if not converted.count:
        return b""
    packed = compress(header.codec, converted.payload, broken_checksum=magic == 0)
    return wrap(
        packed, magic, header.codec, converted.last_offset, converted.max_timestamp, 0 if append_time is None else 1
    )
