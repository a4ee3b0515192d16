"""Walks over stored batches of any format and all their records; see stored_records.pxd.

The results are what a consumer gets (kafkapy.record.batch.records_of returns the same as Python objects): absolute
offsets of inner messages, append times instead of producers' timestamps.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove, memset

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH, AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, CODEC_BITS, CONTROL_BIT,
    HEADER_SIZE, LOOK_BAD_MAGIC, LOOK_PARTIAL, LOOK_WHOLE, TRANSACTIONAL_BIT, Look,
)
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.entries cimport entry_crc_matches, look_entry
from kafkapy._ext.legacy cimport (
    FOUND_WHOLE, MSG_APPEND_TIME_BIT, MSG_CODEC_BITS, MSG_FIELDS_V0, MessageView, read_message,
)
from kafkapy._ext.message_sets cimport SET_VALID, begin_set, explain_set, measure_set, offset_in, timestamp_in
from kafkapy._ext.records cimport STEP_DONE, STEP_MORE, explain, read_record

cdef enum:
    LEAST_ROOM = 262144         # smallest size of the window: two pieces of the decompressors
    KEPT_ROOM = 4194304         # a larger window, for a large record, is freed after its batch


class DamagedBatch(ValueError):
    """A batch or its records are invalid.

    position: of the batch in the buffer; reason: the end of the sentence "the batch at byte N (...) ...".
    """

    def __init__(self, position, reason):
        super().__init__(f"the batch at byte {position} {reason}")
        self.position = position
        self.reason = reason


@cython.final
cdef class StoredRecords:
    """The walk; `decompress(codec, view, magic)` yields a batch's records in pieces and raises ValueError."""

    def __cinit__(self, decompress, bint check_crc=True) -> None:
        self._decompress = decompress
        self._check_crc = check_crc
        self._window = NULL
        self._room = 0
        self._holding = False
        self.last_wanted = 0x7FFFFFFFFFFFFFFF
        memset(&self.batch, 0, sizeof(StoredBatch))

    def __dealloc__(self) -> None:
        PyMem_RawFree(self._window)
        if self._holding:
            PyBuffer_Release(&self._held)

    cdef int open(self, object buffer, Py_ssize_t position) except -1:
        self.close()
        PyObject_GetBuffer(buffer, &self._held, PyBUF_SIMPLE)
        self._holding = True
        if position < 0 or position > self._held.len:
            self.close()
            raise ValueError(f"byte {position} is outside of the buffer")
        self._buffer = buffer
        self._start = <const uint8_t *>self._held.buf
        self._size = self._held.len
        self.position = position
        return 0

    cdef int close(self) except -1:
        self._pieces = self._payload = self._buffer = None
        self._at = self._stop = self._start = NULL
        self._size = 0
        self._ended = True
        if self._holding:
            self._holding = False
            PyBuffer_Release(&self._held)
        if self._room > KEPT_ROOM:
            PyMem_RawFree(self._window)
            self._window = NULL
            self._room = 0
        return 0

    # --- batches

    cdef Stored next_batch(self) noexcept nogil:
        cdef const uint8_t *at = self._start + self.position
        cdef Py_ssize_t left = self._size - self.position
        cdef int64_t size = 0
        cdef Look seen
        if left == 0:
            return STORED_END
        self.batch.position = self.position
        seen = look_entry(at, left, &size)
        if seen == LOOK_PARTIAL:
            return STORED_PARTIAL
        if seen != LOOK_WHOLE:
            return self._damaged(DAMAGE_MAGIC if seen == LOOK_BAD_MAGIC else DAMAGE_SIZE)
        self.batch.size = size
        self.batch.magic = <int8_t>at[AT_MAGIC]
        self.batch.base_offset = <int64_t>load64(at + AT_BASE_OFFSET)
        if self.batch.magic == 2 and self.batch.base_offset > self.last_wanted:
            return STORED_BEHIND
        if self._check_crc and not entry_crc_matches(at, size):
            return self._damaged(DAMAGE_CRC)
        self.position += size
        self._index = 0
        return self._open_batch(at) if self.batch.magic == 2 else self._open_message(at, size)

    cdef Stored _open_batch(self, const uint8_t *at) noexcept nogil:
        cdef StoredBatch *batch = &self.batch
        batch.attributes = <int16_t>load16(at + AT_ATTRIBUTES)
        batch.last_offset = batch.base_offset + <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
        batch.base_timestamp = <int64_t>load64(at + AT_BASE_TIMESTAMP)
        batch.max_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
        batch.producer_id = <int64_t>load64(at + AT_PRODUCER_ID)
        batch.producer_epoch = <int16_t>load16(at + AT_PRODUCER_EPOCH)
        batch.base_sequence = <int32_t>load32(at + AT_BASE_SEQUENCE)
        batch.leader_epoch = <int32_t>load32(at + AT_LEADER_EPOCH)
        batch.count = <int32_t>load32(at + AT_COUNT)
        batch.codec = batch.attributes & CODEC_BITS
        batch.timestamp_type = 1 if batch.attributes & APPEND_TIME_BIT else 0
        batch.transactional = (batch.attributes & TRANSACTIONAL_BIT) != 0
        batch.control = (batch.attributes & CONTROL_BIT) != 0
        if batch.count < 0:
            # Stay at the damaged batch, as for a wrong length, magic or CRC.
            self.position = batch.position
            return self._damaged(DAMAGE_COUNT)
        self._at = at + HEADER_SIZE
        # A compressed batch without records is not decompressed: its payload is empty.
        self._stop = at + batch.size if batch.codec == 0 else self._at
        self._ended = batch.codec == 0 or batch.count == 0
        return STORED_BATCH

    cdef Stored _open_message(self, const uint8_t *at, int64_t size) noexcept nogil:
        cdef StoredBatch *batch = &self.batch
        cdef uint8_t attributes = at[MSG_FIELDS_V0 - 1]
        batch.attributes = attributes
        batch.last_offset = batch.base_offset
        batch.max_timestamp = <int64_t>load64(at + MSG_FIELDS_V0) if batch.magic else -1
        batch.base_timestamp = batch.max_timestamp
        batch.producer_id = batch.base_sequence = batch.leader_epoch = batch.producer_epoch = -1
        batch.codec = attributes & MSG_CODEC_BITS
        batch.timestamp_type = -1
        if batch.magic:
            batch.timestamp_type = 1 if attributes & MSG_APPEND_TIME_BIT else 0
        batch.transactional = batch.control = False
        batch.count = 1 if batch.codec == 0 else -1
        # A single message is read as a set with base 0, whose append time is the message's own timestamp.
        begin_set(&self._inner, batch.magic, 0, 0, 0)
        self._at = at
        self._stop = at + size if batch.codec == 0 else at
        self._ended = batch.codec == 0
        return STORED_BATCH

    # --- records

    cdef Stored next_record(self) noexcept nogil:
        cdef RecordStep step
        cdef StoredBatch *batch = &self.batch
        if batch.magic < 2:
            return self._next_message()
        if self._index >= batch.count:
            if self._at != self._stop:
                return STORED_END if batch.count == 0 else self._damaged(DAMAGE_LEFT_OVER)
            return STORED_END if self._ended else STORED_MORE
        step = read_record(self._at, self._stop, &self.record, &self._missing)
        if step != STEP_DONE:
            if step == STEP_MORE and not self._ended:
                return STORED_MORE
            self._step = step
            return self._damaged(DAMAGE_RECORD)
        self._index += 1
        self.stored = self.record.end - self._at
        self._at = self.record.end
        self.offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t><int64_t>self.record.offset_delta)
        if batch.timestamp_type == 1:
            self.timestamp = batch.max_timestamp
        else:       # wraps around, as in Java
            self.timestamp = <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>self.record.timestamp_delta)
        self.sequence = -1
        if batch.base_sequence >= 0:
            self.sequence = <int32_t>((<int64_t>batch.base_sequence + self.record.offset_delta) & 0x7FFFFFFF)
        return STORED_RECORD

    cdef Stored _next_message(self) noexcept nogil:
        cdef MessageView view
        if not self._ended:
            return STORED_MORE
        if self._index == self.batch.count:
            return STORED_END
        # The messages of a wrapper were checked by measure_set: only a single message can be invalid here.
        if read_message(self._at, self._stop, &view, &self._missing) != FOUND_WHOLE:
            return self._damaged(DAMAGE_MESSAGE)
        self._index += 1
        self._at = view.end
        self.offset = offset_in(&self._inner, &view)
        self.timestamp = timestamp_in(&self._inner, &view)
        self.sequence = -1
        self.stored = view.size
        memset(&self.record, 0, sizeof(RecordView))
        self.record.key = view.key
        self.record.key_length = view.key_length
        self.record.value = view.value
        self.record.value_length = view.value_length
        self.record.headers = self.record.end = view.end
        return STORED_RECORD

    # --- decompression

    cdef int fill(self) except -1:
        cdef Py_ssize_t begin = self.batch.position + HEADER_SIZE, end = self.batch.position + self.batch.size
        try:
            if self.batch.magic < 2:
                return self._open_wrapper()
            if self._stop == self._start + begin:  # the first piece of this batch
                self._pieces = iter(self._decompress(self.batch.codec, memoryview(self._buffer)[begin:end], 2))
                self._at = self._stop = self._window
            piece = next(self._pieces, None)
        except ValueError as error:
            if isinstance(error, DamagedBatch):
                raise
            raise DamagedBatch(
                self.batch.position, f"(base offset {self.batch.base_offset}) cannot be read: {error}"
            ) from error
        if piece is None:
            self._ended = True
            self._pieces = None
        else:
            self._keep(piece)
        return 0

    cdef int _keep(self, object piece) except -1:
        """Append a piece to the unread bytes of the window."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(<bytes?>piece), left = self._stop - self._at, room
        cdef uint8_t *window
        if left:
            memmove(self._window, self._at, left)
        if left + size > self._room:
            room = max(LEAST_ROOM, left + size, 2 * left)
            window = <uint8_t *>PyMem_RawRealloc(self._window, room)
            if window == NULL:
                raise MemoryError
            self._window = window
            self._room = room
        memcpy(self._window + left, PyBytes_AS_STRING(piece), size)
        self._at = self._window
        self._stop = self._window + left + size
        return 0

    cdef int _open_wrapper(self) except -1:
        """Decompress a whole wrapper: the offset of its first message depends on its last message."""
        cdef MessageView view
        cdef StoredBatch *batch = &self.batch
        cdef Py_ssize_t begin
        cdef const uint8_t *end
        if read_message(self._start + batch.position, self._start + batch.position + batch.size, &view,
                        &self._missing) != FOUND_WHOLE:
            self._damaged(DAMAGE_MESSAGE)
            raise self.damage()
        if view.value == NULL:
            self._damaged(DAMAGE_NO_VALUE)
            raise self.damage()
        begin = view.value - self._start
        compressed = memoryview(self._buffer)[begin:begin + view.value_length]
        self._payload = b"".join(self._decompress(batch.codec, compressed, batch.magic))
        self._at = <const uint8_t *>PyBytes_AS_STRING(self._payload)
        end = self._stop = self._at + PyBytes_GET_SIZE(self._payload)
        begin_set(&self._inner, batch.magic, <int8_t>batch.attributes, view.offset, view.timestamp)
        with nogil:
            self._fault = measure_set(&self._inner, self._at, end)
        if self._fault != SET_VALID:
            self._damaged(DAMAGE_SET)
            raise self.damage()
        batch.count = self._inner.count
        self._ended = True
        return 0

    # --- damage

    cdef Stored _damaged(self, Damage damage) noexcept nogil:
        self._damage = damage
        return STORED_DAMAGE

    cdef object damage(self):
        cdef const uint8_t *at = self._start + self.batch.position
        cdef Damage damage = self._damage
        if damage == DAMAGE_SIZE:
            reason = f"is invalid: a length of {<int32_t>load32(at + AT_LENGTH)} is too small for a batch"
        elif damage == DAMAGE_MAGIC:
            reason = f"is invalid: magic {<int8_t>at[AT_MAGIC]} is an unknown message format"
        else:
            reason = f"(base offset {self.batch.base_offset}, {self.batch.size} bytes) "
            if damage == DAMAGE_CRC:
                reason += "has a wrong CRC"
            elif damage == DAMAGE_COUNT:
                reason += f"declares {self.batch.count} records"
            elif damage == DAMAGE_LEFT_OVER:
                reason += f"has bytes after its {self.batch.count} records"
            elif damage == DAMAGE_RECORD:
                reason += f"cannot be read: {explain(self._step, self._index, self._missing)}"
            elif damage == DAMAGE_MESSAGE:
                reason += "has a key or a value that extends beyond its end"
            elif damage == DAMAGE_NO_VALUE:
                reason += "is a compressed wrapper without a value"
            else:
                reason += f"cannot be read: {explain_set(self._fault, &self._inner)}"
        return DamagedBatch(self.batch.position, reason)
