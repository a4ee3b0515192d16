"""Validates the records that a client produces to a partition, for format 2, with the checks of Kafka 3.9's
ProduceRequest, UnifiedLog and LogValidator. Callers use kafkapy.record.validation.

It checks that there is exactly one complete batch, its base offset 0, size, checksum, codec, record count and offsets,
no control records, sequence, and every record, decompressed in pieces if necessary. There is no Python object per
record; the first thousand faults of single records are stored and reported one by one.

Differences from Kafka: it answers UNKNOWN_SERVER_ERROR if a library throws (an unknown codec, a stream that does not
decompress); here that is UNSUPPORTED_COMPRESSION_TYPE or INVALID_RECORD. It stores uncompressed records with wrong
offset deltas unchanged; here they are renumbered, as Kafka does with compressed records. On a CreateTime topic, it
accepts a batch with timestamp type LogAppendTime, resets the type, and keeps the batch's max timestamp; here the max
timestamp is that of the records.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_COUNT, AT_CRC,
    AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID,
    CODEC_BITS, CONTROL_BIT, HEADER_SIZE, KNOWN_BITS, LOOK_BAD_MAGIC, LOOK_PARTIAL, LOOK_WHOLE, TRANSACTIONAL_BIT,
    BatchHeader, Look, crc_matches, header_at, look, sequence_after, store_crc,
)
from kafkapy._ext.cursor cimport Writer, load16, load32, load64, store16, store32, store64
from kafkapy._ext.legacy cimport MSG_OFFSET, MSG_OVERHEAD, MSG_SIZE
from kafkapy._ext.records cimport (
    FAULT_NO_KEY, FAULT_TIMESTAMP, STEP_DONE, STEP_MORE, Step, Walk, explain, walk_records,
)

from kafkapy._ext.batch import assemble
from kafkapy._ext.record_writer import renumber

# Kafka's error codes used here; kafkapy.errors has the complete table (a test compares them).
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

cdef enum:
    LAST_CODEC = 4  # zstd
    # Release the GIL from this size on: checksum and walk take about 15 µs for 64 KiB of records of 100 bytes.
    RELEASE_FROM = 65536

cdef int64_t MAX_INT64 = 0x7FFFFFFFFFFFFFFF


class InvalidBatch(ValueError):
    """A refused batch: error `code`, a sentence in `message`, and `record_errors` [(index, sentence)]."""

    def __init__(self, code, message, record_errors=()):
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = list(record_errors)


@cython.final
@cython.freelist(64)
cdef class ValidatedBatch:
    """A valid batch, which can be appended after `assign` has set its offset and leader epoch."""

    def __repr__(self) -> str:
        return (
            f"ValidatedBatch(size={self.size}, count={self.count}, max_timestamp={self.max_timestamp}, "
            f"producer={self.producer_id}/{self.producer_epoch}, sequences={self.base_sequence}..{self.last_sequence}, "
            f"codec={self.codec}, rebuilt={self.rebuilt})"
        )


def assign(ValidatedBatch batch, int64_t base_offset, int32_t leader_epoch) -> None:
    """Set the offsets and, for format 2, the leader epoch in place; the checksums cover neither.

    A compressed set of format 0 is built by this call, which may take long and raises KafkaError as `remake` does; its
    `data` and `size` are known only afterwards.
    """
    cdef Py_buffer held
    cdef uint8_t *at
    if batch.remake is not None:
        batch.data = memoryview(batch.remake(base_offset))
        batch.size = len(batch.data)
        return
    PyObject_GetBuffer(batch.data, &held, PyBUF_SIMPLE)
    at = <uint8_t *>held.buf
    if batch.magic == 2:
        store64(at + AT_BASE_OFFSET, <uint64_t>base_offset)
        store32(at + AT_LEADER_EPOCH, <uint32_t>leader_epoch)
    elif batch.codec:
        store64(at + MSG_OFFSET, <uint64_t>(base_offset + batch.last_offset_delta))
    elif batch.size < RELEASE_FROM:
        _number(at, batch.count, base_offset)
    else:
        with nogil:
            _number(at, batch.count, base_offset)
    PyBuffer_Release(&held)


cdef void _number(uint8_t *at, int32_t count, int64_t offset) noexcept nogil:
    """Set consecutive offsets in single messages, which must be complete."""
    cdef int32_t i
    for i in range(count):
        store64(at + MSG_OFFSET, <uint64_t>(offset + i))
        at += MSG_OVERHEAD + <int64_t><int32_t>load32(at + MSG_SIZE)


cdef object _refuse(int code, str message):
    raise InvalidBatch(code, message)


# Return the size of the only complete batch. As in Kafka, an incomplete batch after it is ignored.
cdef int64_t _only_batch(const uint8_t *at, Py_ssize_t left) except -1:
    cdef int64_t size = 0, other = 0
    cdef Look seen = look(at, left, &size)
    if seen == LOOK_PARTIAL:
        _refuse(INVALID_RECORD, f"the {left} bytes of records do not hold a complete batch"
                + (f" (the batch has {size} bytes by its length)" if size else ""))
    if seen == LOOK_BAD_MAGIC:
        _refuse(INVALID_RECORD if at[AT_MAGIC] < 2 else CORRUPT_MESSAGE,
                f"the batch has magic {<signed char>at[AT_MAGIC]}; only format 2 can be produced")
    if seen != LOOK_WHOLE:
        _refuse(CORRUPT_MESSAGE, f"the batch has {size} bytes by its length, too few for a batch")
    seen = look(at + size, left - size, &other)
    if seen == LOOK_WHOLE or (seen == LOOK_BAD_MAGIC and (at + size)[AT_MAGIC] < 2):
        _refuse(INVALID_RECORD, f"there is more than one batch ({left - size} bytes are left after the first); "
                "a produce request has exactly one batch for each partition")
    if seen != LOOK_PARTIAL:
        _refuse(CORRUPT_MESSAGE, f"the {left - size} bytes after the batch are not a batch")
    return size


# Kafka's LogValidator.validateBatch; a coordinator's batches may have control records, or no sequence.
cdef int _check_header(const uint8_t *at, bint of_client) except -1:
    cdef int32_t count = <int32_t>load32(at + AT_COUNT)
    cdef int32_t last = <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
    cdef int64_t producer = <int64_t>load64(at + AT_PRODUCER_ID)
    cdef int32_t sequence = <int32_t>load32(at + AT_BASE_SEQUENCE)
    if last < 0:
        _refuse(INVALID_RECORD, f"the batch has the last offset delta {last}")
    if count <= 0:
        _refuse(INVALID_RECORD, f"the batch has the record count {count}")
    if <int64_t>last + 1 != count:
        _refuse(INVALID_RECORD, f"the batch has the record count {count}, but the last offset delta {last}")
    if not of_client:
        return 0
    if load16(at + AT_ATTRIBUTES) & CONTROL_BIT:
        _refuse(INVALID_RECORD, "clients may not write control records")
    if producer > -1 and sequence < 0:
        _refuse(INVALID_RECORD, f"the batch of producer {producer} has the base sequence {sequence}")
    return 0


# Return a + b, limited to the range of an int64 instead of wrapping around.
cdef int64_t _sum(int64_t a, int64_t b) noexcept nogil:
    if b > 0 and a > MAX_INT64 - b:
        return MAX_INT64
    if b < 0 and a < -MAX_INT64 - b:
        return -MAX_INT64
    return a + b


cdef object _refuse_structure(Step step, Walk *walk):
    raise InvalidBatch(INVALID_RECORD, explain(step, walk.index, walk.missing))


cdef object _refuse_left_over(Walk *walk, int64_t left):
    raise InvalidBatch(INVALID_RECORD, f"at least {left} bytes are left after the {walk.count} records of the batch")


cdef object _refuse_records(Walk *walk):
    cdef int32_t i
    cdef list errors = []
    for i in range(walk.faults_kept):
        if walk.faults[i].fault == FAULT_NO_KEY:
            message = "a compacted topic requires a key in every record"
        elif walk.faults[i].fault == FAULT_TIMESTAMP:
            message = (f"the timestamp {walk.faults[i].timestamp} is not within "
                       f"[{walk.earliest}, {walk.latest}], the range that the topic allows now")
        else:
            message = "a producer may not set the timestamp type to LogAppendTime"
        errors.append((walk.faults[i].index, message))
    first = f"; the first is record {errors[0][0]}: {errors[0][1]}" if errors else ""
    if walk.timestamp_fault:
        raise InvalidBatch(
            INVALID_TIMESTAMP, f"{walk.fault_count} records of the batch were refused, some for their timestamp{first}",
            errors)
    raise InvalidBatch(INVALID_RECORD, f"{walk.fault_count} records of the batch were refused{first}", errors)


cdef int _walk_memory(Walk *walk, const uint8_t *at, const uint8_t *end) except -1:
    cdef Step step
    if end - at < RELEASE_FROM:
        step = walk_records(walk, &at, end)
    else:
        with nogil:
            step = walk_records(walk, &at, end)
    if step != STEP_DONE:
        _refuse_structure(step, walk)
    if at != end:
        _refuse_left_over(walk, end - at)
    return 0


# Walk over a payload that arrives in pieces. Only a record that spans pieces is copied, into `carry`, whose size is
# limited to the bytes that have arrived, whatever length the record claims.
cdef int _walk_pieces(Walk *walk, object pieces) except -1:
    cdef Writer carry = Writer(256)
    cdef Step step = STEP_DONE if walk.count == 0 else STEP_MORE
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *inner
    cdef Py_ssize_t take
    cdef bytes piece
    walk.missing = 1
    for piece in pieces:
        at = <const uint8_t *>PyBytes_AS_STRING(piece)
        end = at + PyBytes_GET_SIZE(piece)
        while at != end:
            if step == STEP_DONE:
                _refuse_left_over(walk, end - at)
            if carry.size == 0:
                step = walk_records(walk, &at, end)
                if step == STEP_MORE:
                    carry.put_raw(at, end - at)
                    at = end
            else:
                take = min(walk.missing, end - at)
                carry.put_raw(at, take)
                at += take
                inner = carry.data
                step = walk_records(walk, &inner, carry.data + carry.size)
                if inner != carry.data:
                    carry.size = 0
            if step != STEP_MORE and step != STEP_DONE:
                _refuse_structure(step, walk)
    if step != STEP_DONE:
        _refuse_structure(STEP_MORE, walk)
    return 0


cdef bytes _rebuild(bytes payload, BatchHeader header, int codec, int timestamp_type, int64_t now_ms, object compress):
    cdef bytes records
    records, base, largest = renumber(payload, header)
    return assemble(
        compress(codec, records),
        count=header.count,
        attributes=codec | (APPEND_TIME_BIT if timestamp_type else 0) | (header.attributes & TRANSACTIONAL_BIT),
        base_timestamp=base,
        max_timestamp=now_ms if timestamp_type else largest,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


cdef ValidatedBatch _result(object data, bint rebuilt):
    cdef ValidatedBatch batch = ValidatedBatch.__new__(ValidatedBatch)
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef uint16_t attributes
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    at = <const uint8_t *>held.buf
    attributes = load16(at + AT_ATTRIBUTES)
    batch.data = data
    batch.size = held.len
    batch.magic = 2
    batch.count = <int32_t>load32(at + AT_COUNT)
    batch.last_offset_delta = <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
    batch.max_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
    batch.offset_delta_of_max_timestamp = -1 if batch.max_timestamp == -1 else batch.last_offset_delta
    batch.producer_id = <int64_t>load64(at + AT_PRODUCER_ID)
    batch.producer_epoch = <int16_t>load16(at + AT_PRODUCER_EPOCH)
    batch.base_sequence = <int32_t>load32(at + AT_BASE_SEQUENCE)
    batch.last_sequence = sequence_after(batch.base_sequence, batch.last_offset_delta)
    batch.is_transactional = (attributes & TRANSACTIONAL_BIT) != 0
    batch.is_control = (attributes & CONTROL_BIT) != 0
    batch.timestamp_type = 1 if attributes & APPEND_TIME_BIT else 0
    batch.codec = attributes & CODEC_BITS
    batch.rebuilt = rebuilt
    PyBuffer_Release(&held)
    return batch


def built_batch(data) -> ValidatedBatch:
    """Return the ValidatedBatch of a batch of format 2 built from checked records; `data`: a writable memoryview."""
    return _result(data, True)


@cython.final
cdef class BatchRules:
    """The settings of a topic by which batches of format 2 are validated; kafkapy.record.validation.validate describes
    them.

    `decompress(codec, view)` yields the payload's bytes in pieces and raises InvalidBatch itself;
    `compress(codec, data)` returns bytes. With `plain_only`, transactional and idempotent batches are refused.
    """

    def __init__(
        self,
        decompress,
        compress,
        *,
        int timestamp_type,
        int64_t before_max_ms,
        int64_t after_max_ms,
        bint compact,
        int target_codec,
        int64_t max_message_bytes,
        bint plain_only=False,
    ) -> None:
        self.decompress = decompress
        self.compress = compress
        self.timestamp_type = timestamp_type
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.compact = compact
        self.target_codec = target_codec
        self.max_message_bytes = max_message_bytes
        self.plain_only = plain_only

    def validate(self, buffer, int64_t now_ms, bint of_client=True) -> ValidatedBatch:
        """Validate the records that a client produced to a partition: one batch of format 2. Raises InvalidBatch.

        Timestamp type and max timestamp are changed in `buffer` if the topic requires it (a read-only buffer is copied
        first).
        """
        cdef Py_buffer held
        cdef Walk walk
        cdef const uint8_t *at
        cdef int64_t size, max_timestamp
        cdef uint16_t attributes, wanted
        cdef int codec, target_codec
        cdef bint right
        cdef object view
        cdef BatchHeader header
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        if held.readonly:
            PyBuffer_Release(&held)
            buffer = bytearray(buffer)
            PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        memset(&walk, 0, sizeof(Walk))
        try:
            at = <const uint8_t *>held.buf
            size = _only_batch(at, held.len)
            attributes = load16(at + AT_ATTRIBUTES)
            codec = attributes & CODEC_BITS
            if load64(at + AT_BASE_OFFSET) != 0:
                _refuse(INVALID_RECORD, f"the batch has the base offset {<int64_t>load64(at + AT_BASE_OFFSET)}, not 0")
            if 0 <= self.max_message_bytes < size:
                _refuse(MESSAGE_TOO_LARGE, f"the batch has {size} bytes, the topic allows {self.max_message_bytes}")
            if size < RELEASE_FROM:
                right = crc_matches(at, size)
            else:
                with nogil:
                    right = crc_matches(at, size)
            if not right:
                _refuse(CORRUPT_MESSAGE,
                        f"the batch has the CRC {load32(at + AT_CRC)}, which is not the CRC of its bytes")
            if codec > LAST_CODEC:
                _refuse(UNSUPPORTED_COMPRESSION_TYPE, f"the batch is compressed with the unknown codec {codec}")
            _check_header(at, of_client)
            if self.plain_only and (attributes & TRANSACTIONAL_BIT or <int64_t>load64(at + AT_PRODUCER_ID) > -1):
                kind = "transactional" if attributes & TRANSACTIONAL_BIT else "idempotent"
                _refuse(UNSUPPORTED_FOR_MESSAGE_FORMAT,
                        f"the topic's message format is too old for {kind} producers; it needs format 2")

            walk.count = <int32_t>load32(at + AT_COUNT)
            walk.base_timestamp = <int64_t>load64(at + AT_BASE_TIMESTAMP)
            walk.need_keys = self.compact
            walk.check_window = self.timestamp_type == 0
            walk.earliest = _sum(now_ms, -self.before_max_ms)
            walk.latest = _sum(now_ms, self.after_max_ms)
            walk.refuse_append_time = self.timestamp_type != 0 and (attributes & APPEND_TIME_BIT) != 0
            walk.offsets_in_order = True
            walk.max_timestamp = -1
            view = memoryview(buffer)
            if codec == 0:
                _walk_memory(&walk, at + HEADER_SIZE, at + size)
            else:
                _walk_pieces(&walk, self.decompress(codec, view[HEADER_SIZE:size]))
            if walk.fault_count:
                _refuse_records(&walk)

            # Control records are never recompressed, whatever the topic's codec.
            target_codec = codec if attributes & CONTROL_BIT else self.target_codec
            if (target_codec >= 0 and target_codec != codec) or not walk.offsets_in_order:
                payload = bytes(view[HEADER_SIZE:size])
                if codec:
                    payload = b"".join(self.decompress(codec, view[HEADER_SIZE:size]))
                header = header_at(at, 0)
                header.attributes &= ~APPEND_TIME_BIT
                rebuilt = _rebuild(payload, header, codec if target_codec < 0 else target_codec,
                                   self.timestamp_type, now_ms, self.compress)
                if 0 <= self.max_message_bytes < len(rebuilt):
                    _refuse(MESSAGE_TOO_LARGE, f"the batch has {len(rebuilt)} bytes after recompression, "
                            f"the topic allows {self.max_message_bytes}")
                return _result(memoryview(bytearray(rebuilt)), True)

            max_timestamp = now_ms if self.timestamp_type else walk.max_timestamp
            wanted = attributes & ~APPEND_TIME_BIT
            if self.timestamp_type:
                wanted |= APPEND_TIME_BIT
            if attributes != wanted or <int64_t>load64(at + AT_MAX_TIMESTAMP) != max_timestamp:
                wanted &= KNOWN_BITS
                store16(<uint8_t *>at + AT_ATTRIBUTES, wanted)
                store64(<uint8_t *>at + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
                if size < RELEASE_FROM:
                    store_crc(<uint8_t *>at, size)
                else:
                    with nogil:
                        store_crc(<uint8_t *>at, size)
            return _result(view if size == held.len else view[:size], False)
        finally:
            PyMem_RawFree(walk.faults)
            PyBuffer_Release(&held)
