"""Validates produced message sets of formats 0 and 1.

The checks are those of Kafka 3.9's UnifiedLog.analyzeAndValidateRecords and LogValidator: size and CRC of every
message, also of those inside a wrapper, which is decompressed in pieces; a single format; either one wrapper or any
number of single messages; no wrapper inside a wrapper; keys for compacted topics; timestamps in the range that the
topic allows. There is no Python object per message, and validation ends at the first invalid message.

Differences from Kafka: it stores a message whose key or value extends beyond its end, or that has bytes after its
value, and drops an incomplete last message of a wrapper. Here these are rejected.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memset

from kafkapy._ext.cursor cimport Writer, load32, load64, store64
from kafkapy._ext.legacy cimport (
    FOUND_BAD_MAGIC, FOUND_BAD_SIZE, FOUND_CUT, FOUND_PARTIAL, FOUND_WHOLE, MSG_APPEND_TIME_BIT, MSG_ATTRIBUTES,
    MSG_CODEC_BITS, MSG_MAGIC, MSG_OVERHEAD, MSG_SIZE, MSG_TIMESTAMP, MessageView, explain_message, message_crc_matches,
    read_message, store_message_crc,
)
from kafkapy._ext.validation cimport ValidatedBatch

from kafkapy._ext.validation import (
    CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, InvalidBatch,
)

cdef enum:
    LAST_OLD_CODEC = 3          # lz4
    ZSTD = 4
    RELEASE_FROM = 65536

cdef enum Verdict:
    GOOD
    NOT_WHOLE                   # the memory ends inside the message
    BAD_MESSAGE                 # see `found`
    BAD_CRC
    TOO_LARGE
    OTHER_MAGIC
    NESTED
    LEFT_OVER                   # bytes after the value
    NO_KEY
    OUT_OF_WINDOW
    APPEND_TIME_CLAIMED
    NOT_ALONE                   # a wrapper next to other messages

cdef int64_t MAX_INT64 = 0x7FFFFFFFFFFFFFFF


cdef Verdict judge(Check *check, const MessageView *view, int64_t timestamp, bint claimed) noexcept nogil:
    """Check key and timestamp as Kafka's validateKey and validateTimestamp do, and update the findings."""
    if check.need_keys and view.key == NULL:
        return NO_KEY
    if check.create_time and timestamp != -1:
        if timestamp < check.earliest or timestamp > check.latest:
            check.timestamp = timestamp
            return OUT_OF_WINDOW
    elif claimed:
        return APPEND_TIME_CLAIMED
    if timestamp > check.max_timestamp:
        check.max_timestamp = timestamp
        check.index_of_max = check.index
    check.index += 1
    return GOOD


cdef Verdict read_valid(Check *check, const uint8_t *at, const uint8_t *end, MessageView *view) noexcept nogil:
    check.fault_at = at
    check.found = read_message(at, end, view, &check.missing)
    if check.found == FOUND_PARTIAL:
        return NOT_WHOLE
    if check.found == FOUND_BAD_MAGIC and at[MSG_MAGIC] == 2:
        return OTHER_MAGIC
    if check.found == FOUND_BAD_SIZE or check.found == FOUND_BAD_MAGIC:
        return BAD_MESSAGE
    if not message_crc_matches(at, MSG_OVERHEAD + <int64_t><int32_t>load32(at + MSG_SIZE)):
        return BAD_CRC
    if check.found == FOUND_CUT:
        return BAD_MESSAGE
    if view.magic != check.magic:
        return OTHER_MAGIC
    return GOOD if view.fields_end == view.end else LEFT_OVER


cdef Verdict walk_messages(Check *check, const uint8_t **cursor, const uint8_t *end, int *codec) noexcept nogil:
    """Check single messages, or one wrapper without what is inside it."""
    cdef MessageView view
    cdef Verdict verdict
    while True:
        verdict = read_valid(check, cursor[0], end, &view)
        if verdict != GOOD:
            return verdict
        if 0 <= check.max_size < view.size:
            return TOO_LARGE
        if codec[0] or (view.attributes & MSG_CODEC_BITS and check.index):
            return NOT_ALONE
        codec[0] = view.attributes & MSG_CODEC_BITS
        cursor[0] = view.end
        if codec[0] == 0:
            verdict = judge(check, &view, view.timestamp, view.magic and view.attributes & MSG_APPEND_TIME_BIT)
            if verdict != GOOD:
                return verdict


cdef Verdict walk_inner(Check *check, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    """Check the messages inside a wrapper."""
    cdef MessageView view
    cdef Verdict verdict
    while cursor[0] != end:
        verdict = read_valid(check, cursor[0], end, &view)
        if verdict != GOOD:
            return verdict
        if view.attributes & MSG_CODEC_BITS:
            return NESTED
        if check.index == 0:
            check.first_inner = view.offset
        elif view.offset != check.last_inner + 1:
            check.consecutive = False
        check.last_inner = view.offset
        verdict = judge(
            check, &view, check.wrapper_timestamp if check.append_time else view.timestamp, check.append_time
        )
        if verdict != GOOD:
            return verdict
        cursor[0] = view.end
    return GOOD


cdef object refuse(Verdict verdict, const Check *check, str what="message"):
    cdef int32_t index = check.index
    if verdict == NOT_WHOLE or verdict == BAD_MESSAGE:
        raise InvalidBatch(
            INVALID_RECORD if verdict == NOT_WHOLE or check.found == FOUND_CUT else CORRUPT_MESSAGE,
            explain_message(check.found, f"{what} {index}", check.fault_at, check.missing))
    if verdict == BAD_CRC:
        raise InvalidBatch(CORRUPT_MESSAGE, f"{what} {index} has a wrong CRC")
    if verdict == TOO_LARGE:
        raise InvalidBatch(
            MESSAGE_TOO_LARGE,
            f"{what} {index} has {MSG_OVERHEAD + <int64_t><int32_t>load32(check.fault_at + MSG_SIZE)} bytes, "
            f"the topic allows {check.max_size}")
    if verdict == OUT_OF_WINDOW:
        raise InvalidBatch(
            INVALID_TIMESTAMP,
            f"the timestamp {check.timestamp} of {what} {index} is not within [{check.earliest}, {check.latest}], "
            "the range that the topic allows now")
    if verdict == APPEND_TIME_CLAIMED:
        raise InvalidBatch(INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    raise InvalidBatch(INVALID_RECORD, {
        OTHER_MAGIC: f"{what} {index} has another format than the first one, which has format {check.magic}",
        NESTED: f"{what} {index} is compressed too; a wrapper must not contain wrappers",
        LEFT_OVER: f"{what} {index} has bytes after its value",
        NO_KEY: f"{what} {index} has no key; a compacted topic requires keys",
        NOT_ALONE: "a compressed set must be the only one of a produce request",
    }[verdict])


cdef int walk_pieces(Check *check, object pieces) except -1:
    """Check the messages inside a wrapper while they are decompressed. Only a message that spans pieces is copied, into
    `carry`, whose size is limited to the bytes that have arrived, whatever size the message claims."""
    cdef Writer carry = Writer(256)
    cdef Verdict verdict = GOOD
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *inner
    cdef const uint8_t *carried
    cdef Py_ssize_t take
    cdef bytes piece
    cdef str what = "message of the wrapper"
    for piece in pieces:
        at = <const uint8_t *>PyBytes_AS_STRING(piece)
        end = at + PyBytes_GET_SIZE(piece)
        while at != end:
            if carry.size == 0:
                if end - at < RELEASE_FROM:
                    verdict = walk_inner(check, &at, end)
                else:
                    with nogil:
                        verdict = walk_inner(check, &at, end)
                if verdict == NOT_WHOLE:
                    carry.put_raw(at, end - at)
                    at = end
            else:
                take = min(check.missing, end - at)
                carry.put_raw(at, take)
                at += take
                inner = carry.data
                carried = carry.data + carry.size
                if carry.size < RELEASE_FROM:
                    verdict = walk_inner(check, &inner, carried)
                else:           # the message may now be complete, and its CRC is computed
                    with nogil:
                        verdict = walk_inner(check, &inner, carried)
                if inner != carry.data:
                    carry.size = 0
            if verdict != GOOD and verdict != NOT_WHOLE:
                refuse(verdict, check, what)
    if verdict == NOT_WHOLE:
        refuse(verdict, check, what)
    if check.index == 0:
        raise InvalidBatch(INVALID_RECORD, "the wrapper has no messages")
    return 0


cdef bint numbered_from_zero(const Check *check, int64_t wrapper_offset) except -1:
    """Return True if a consumer would number the messages of the wrapper 0, 1, 2, ... (rules: see message_sets)."""
    cdef int64_t base = 0
    if wrapper_offset != 0:
        if wrapper_offset < check.last_inner:
            raise InvalidBatch(
                INVALID_RECORD,
                f"the wrapper has the offset {wrapper_offset}, "
                f"but the relative offset of its last message is {check.last_inner}")
        base = wrapper_offset - check.last_inner
    # If the difference exceeds an int64, consumers use the inner offsets unchanged.
    return check.consecutive and base >= 0 and base + check.first_inner == 0


# Return a + b, limited to the range of an int64 instead of wrapping around.
cdef int64_t _sum(int64_t a, int64_t b) noexcept nogil:
    if b > 0 and a > MAX_INT64 - b:
        return MAX_INT64
    if b < 0 and a < -MAX_INT64 - b:
        return -MAX_INT64
    return a + b


@cython.final
cdef class CheckedMessages:
    """A valid produced message set, which can be stored or converted."""


def check_messages(
    buffer,
    decompress,
    *,
    int64_t now_ms,
    int timestamp_type,
    int64_t before_max_ms,
    int64_t after_max_ms,
    bint compact,
    int64_t max_message_bytes,
) -> CheckedMessages:
    """Validate the messages of format 0 or 1 that a client produced to a partition; changes nothing.

    `decompress(codec, view)` yields the bytes of a wrapper's set in pieces and raises InvalidBatch itself. The other
    arguments: kafkapy.record.validation.validate. Raises InvalidBatch.
    """
    cdef Py_buffer held
    cdef Check check
    cdef MessageView view
    cdef Verdict verdict
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef int codec = 0
    cdef CheckedMessages checked = CheckedMessages.__new__(CheckedMessages)
    memset(&check, 0, sizeof(Check))
    check.need_keys = compact
    check.create_time = timestamp_type == 0
    check.earliest = _sum(now_ms, -before_max_ms)
    check.latest = _sum(now_ms, after_max_ms)
    check.max_size = max_message_bytes
    check.max_timestamp = -1
    check.index_of_max = -1
    check.consecutive = True
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *>held.buf
        at = start
        if read_message(start, start + held.len, &view, &check.missing) == FOUND_WHOLE:
            check.magic = view.magic
        if held.len < RELEASE_FROM:
            verdict = walk_messages(&check, &at, start + held.len, &codec)
        else:
            with nogil:
                verdict = walk_messages(&check, &at, start + held.len, &codec)
        if verdict != NOT_WHOLE:
            refuse(verdict, &check)
        if at == start:
            raise InvalidBatch(INVALID_RECORD, f"the {held.len} bytes of records do not hold a complete message")
        checked.size = at - start
        checked.magic = check.magic
        checked.codec = codec
        if codec:
            if codec > LAST_OLD_CODEC:
                raise InvalidBatch(
                    INVALID_RECORD if codec == ZSTD else UNSUPPORTED_COMPRESSION_TYPE,
                    f"a message of format {check.magic} cannot be compressed with codec {codec}")
            read_message(start, at, &view, &check.missing)
            if view.value == NULL:
                raise InvalidBatch(INVALID_RECORD, "the wrapper has no value")
            check.append_time = view.magic and view.attributes & MSG_APPEND_TIME_BIT
            check.wrapper_timestamp = view.timestamp
            inner = memoryview(buffer)[view.value - start : view.value - start + view.value_length]
            walk_pieces(&check, decompress(codec, inner))
            if view.magic:
                checked.in_order = numbered_from_zero(&check, view.offset)
        checked.count = check.index
        checked.max_timestamp = check.max_timestamp
        checked.index_of_max = check.index_of_max
        return checked
    finally:
        PyBuffer_Release(&held)


cdef void stamp(uint8_t *at, int64_t size, bint append_time, int64_t timestamp) noexcept nogil:
    """Set timestamp and timestamp type of a message of format 1, and its CRC if that changes anything."""
    cdef uint8_t attributes = at[MSG_ATTRIBUTES]
    cdef uint8_t wanted = attributes & ~MSG_APPEND_TIME_BIT
    if append_time:
        wanted |= MSG_APPEND_TIME_BIT
    if attributes == wanted and <int64_t>load64(at + MSG_TIMESTAMP) == timestamp:
        return
    at[MSG_ATTRIBUTES] = wanted & (MSG_CODEC_BITS | MSG_APPEND_TIME_BIT)
    store64(at + MSG_TIMESTAMP, <uint64_t>timestamp)
    store_message_crc(at, size)


cdef void stamp_all(uint8_t *at, const uint8_t *end, bint append_time, int64_t now_ms) noexcept nogil:
    cdef int64_t size, timestamp
    while at != end:
        size = MSG_OVERHEAD + <int64_t><int32_t>load32(at + MSG_SIZE)
        timestamp = <int64_t>load64(at + MSG_TIMESTAMP)
        stamp(at, size, append_time, now_ms if append_time else max(timestamp, -1))
        at += size


def store_in_place(buffer, CheckedMessages checked, int timestamp_type, int64_t now_ms) -> ValidatedBatch:
    """Return the checked set, after setting the topic's timestamp type and timestamps in `buffer` (writable)."""
    cdef Py_buffer held
    cdef uint8_t *at
    cdef bint append_time = timestamp_type != 0
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    at = <uint8_t *>held.buf
    if checked.magic and checked.codec:
        stamp(at, checked.size, append_time, now_ms if append_time else checked.max_timestamp)
    elif checked.magic and checked.size < RELEASE_FROM:
        stamp_all(at, at + checked.size, append_time, now_ms)
    elif checked.magic:
        with nogil:
            stamp_all(at, at + checked.size, append_time, now_ms)
    PyBuffer_Release(&held)
    return message_batch(
        memoryview(buffer)[:checked.size], checked.magic, checked.codec, checked.count, timestamp_type,
        now_ms if append_time else checked.max_timestamp, 0 if append_time else checked.index_of_max,
    )


def message_batch(
    data, int magic, int codec, int32_t count, int timestamp_type, int64_t max_timestamp, int32_t index_of_max,
    bint rebuilt=False, remake=None,
) -> ValidatedBatch:
    """Return a message set for the log. index_of_max: index of the first message with the largest timestamp; only used
    for an uncompressed set."""
    cdef ValidatedBatch batch = ValidatedBatch.__new__(ValidatedBatch)
    batch.data = data
    batch.size = len(data)
    batch.magic = magic
    batch.count = count
    batch.last_offset_delta = count - 1
    batch.max_timestamp = max_timestamp if magic else -1
    batch.offset_delta_of_max_timestamp = -1
    if batch.max_timestamp != -1:
        batch.offset_delta_of_max_timestamp = count - 1 if codec else index_of_max
    batch.producer_id = -1
    batch.producer_epoch = -1
    batch.base_sequence = -1
    batch.last_sequence = -1
    batch.timestamp_type = timestamp_type if magic else 0
    batch.codec = codec
    batch.rebuilt = rebuilt
    batch.remake = remake
    return batch
