"""Down-conversion: what a log holds, as a client that knows older message formats only can read it.

Control batches are left out, since old formats have no place for transactions; headers are dropped; format 0 loses the
timestamps. A compressed batch becomes one wrapper with the same codec, an uncompressed one single messages; offsets
stay. Of uncompressed records those before the offset asked for are left out, which some clients rely on. Source:
Kafka's RecordsUtil.downConvert.
"""

from __future__ import annotations

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.entries import next_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_writer import wrap
from kafkapy._ext.transcode import KEPT, RELATIVE, convert_payload, convert_run
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import MAX_PAYLOAD, Buffer, payload_of
from kafkapy.record.compression import NAMES, ZSTD, compress


def down_convert(buffer: Buffer, magic: int, first_offset: int = 0, *, max_decompressed: int = MAX_PAYLOAD) -> bytes:
    """The entries of `buffer` for a client that knows formats up to `magic` (0 or 1); what it knows stays as it is.

    An entry that is not all there ends it. The caller bounds the memory by how much it hands in at a time: beside the
    result at most one entry is decompressed at a time. The result may be empty.
    max_decompressed: the most bytes that one entry may unpack to, and take when it is converted.

    Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, which old clients do not know; CORRUPT_MESSAGE.
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
    """One entry that `convert_run` has stopped at: a compressed one, or one that is damaged."""
    if header.codec == 0:
        # As the first of a run its fault is named.
        return convert_run(buffer, header.position, magic, first_offset)[0]
    if header.codec >= ZSTD:
        name = NAMES[ZSTD] if header.codec == ZSTD else f"codec {header.codec}"
        raise KafkaError(
            Errors.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at offset {header.last_offset} is compressed with {name}, which message format {magic} has not",
        )
    append_time = max(header.max_timestamp, -1) if header.timestamp_type == 1 else None
    made = convert_payload(
        payload_of(buffer, header, limit) if getattr(header, "count", 1) else b"",
        header,
        magic,
        offsets=RELATIVE if magic else KEPT,
        append_time=append_time,
        limit=limit,
    )
    if not made.count:
        return b""
    packed = compress(header.codec, made.payload, broken_checksum=magic == 0)
    return wrap(packed, magic, header.codec, made.last_offset, made.max_timestamp, 0 if append_time is None else 1)
