"""The first pass of a cleaning (Kafka's Cleaner.buildOffsetMap), without the GIL; see key_index.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t

from kafkapy._ext.batch cimport (
    AT_ATTRIBUTES, AT_LAST_OFFSET_DELTA, AT_LENGTH, AT_MAGIC, AT_PRODUCER_ID, CODEC_BITS, CONTROL_BIT, LOOK_PARTIAL,
    LOOK_WHOLE, TRANSACTIONAL_BIT, Look,
)
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.decided_txns cimport DecidedTransactions
from kafkapy._ext.entries cimport entry_crc_matches, look_entry
from kafkapy._ext.keyed_records cimport begin_records, explain_records, next_record
from kafkapy._ext.keymap cimport PUT_FULL, KeyMap
from kafkapy._ext.legacy cimport MSG_ATTRIBUTES, MSG_CODEC_BITS


class CorruptEntry(ValueError):
    """An entry of the log is corrupt; the message says where and why."""


cdef int marker_kind(RecordCursor *cursor) noexcept nogil:
    cdef KeyedRecord record
    if not next_record(cursor, &record):
        return -2 if cursor.fault else -1
    if record.key == NULL or record.key_length < 4 or <int16_t>load16(record.key) < 0:
        return -2
    return <int16_t>load16(record.key + 2)


cdef bint offsets_follow(const uint8_t *at, int64_t *lower, int64_t end) noexcept nogil:
    cdef int64_t first = <int64_t>load64(at), last = first
    if at[AT_MAGIC] == 2:
        last += <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
        if last < first:
            return False
    if first < lower[0] or last >= end:
        return False
    lower[0] = last + 1
    return True


cdef str explain_stop(
    Stop stop, const RecordCursor *cursor, const uint8_t *data, Py_ssize_t position, Py_ssize_t size
):
    cdef const uint8_t *at = data + position
    # `look_entry` has read the entry's offset and length; the magic may not be there.
    where = f"the entry {position} bytes further (offset {<int64_t>load64(at)})"
    if stop == STOP_CRC:
        return f"{where} has a wrong CRC"
    if stop == STOP_RECORDS:
        if cursor.fault:
            return f"{where}: {explain_records(cursor)}"
        return f"{where} is a control batch whose record has no type"
    if stop == STOP_ORDER:
        return f"{where} has offsets that do not follow those before, or that belong to the next segment"
    if stop == STOP_LARGE:
        return f"{where} would exceed 2 GiB when its records are rewritten"
    magic = f" and magic {<int8_t>at[AT_MAGIC]}" if size - position > AT_MAGIC else ""
    return f"{where} has the length {<int32_t>load32(at + AT_LENGTH)}{magic}, which is not valid for an entry"


@cython.final
cdef class KeyIndex:
    """Puts the keys of records from `start_offset` on into `keys`, except those of aborted transactions.

    Feed a KeyIndex the entries of a log in order; call `begin_segment` before each segment.
    """

    def __cinit__(self, KeyMap keys not None, DecidedTransactions transactions not None, int64_t start_offset):
        self._keys = keys
        self._transactions = transactions
        self._start_offset = start_offset
        self.latest_offset = -1

    def begin_segment(self, int64_t base_offset, int64_t end) -> None:
        """Begin a segment: the next entries have offsets from `base_offset` to `end`, which is exclusive."""
        self._lower = base_offset
        self._end = end

    def feed(self, buffer, Py_ssize_t position, payload=None) -> bool:
        """Process the complete entries of `buffer` from `position` on; the attribute `position` says how far.

        Return True if the entry at `position` is compressed: call `feed` again from there with its decompressed
        payload. Raises CorruptEntry, MemoryError.
        """
        cdef Py_buffer held, unpacked
        cdef const uint8_t *data
        cdef Stop stop
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            if position < 0 or position > held.len:
                raise ValueError(f"byte {position} is outside of the {held.len} bytes")
            self.position = position
            if payload is None:
                with nogil:
                    stop = self._walk(<const uint8_t *>held.buf, held.len, NULL, 0)
            else:
                PyObject_GetBuffer(payload, &unpacked, PyBUF_SIMPLE)
                try:
                    with nogil:
                        stop = self._walk(
                            <const uint8_t *>held.buf, held.len, <const uint8_t *>unpacked.buf, unpacked.len
                        )
                finally:
                    PyBuffer_Release(&unpacked)
            if stop == STOP_MEMORY or self._transactions.out_of_memory:
                raise MemoryError("no memory for the transactions of a log")
            self.full = stop == STOP_FULL
            if stop != STOP_END and stop != STOP_PAYLOAD and stop != STOP_FULL:
                data = <const uint8_t *>held.buf
                raise CorruptEntry(explain_stop(stop, &self._cursor, data, self.position, held.len))
            return stop == STOP_PAYLOAD
        finally:
            PyBuffer_Release(&held)

    def reached(self, int64_t offset) -> None:
        """Count the offsets below `offset` as read: no entry below it is left."""
        self.latest_offset = offset - 1

    cdef Stop _walk(
        self, const uint8_t *data, Py_ssize_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        cdef int64_t length = 0
        cdef Look seen
        cdef Stop stop
        while True:
            seen = look_entry(data + self.position, size - self.position, &length)
            if seen == LOOK_PARTIAL:
                return STOP_END
            if seen != LOOK_WHOLE:
                return STOP_ENTRY
            stop = self._entry(data + self.position, length, payload, payload_size)
            if stop != STOP_END:
                return stop
            payload = NULL
            self.position += length
            self.bytes += length

    cdef Stop _entry(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        cdef int64_t last_offset = <int64_t>load64(at)
        cdef int16_t attributes
        cdef int kind
        cdef bint packed, aborted
        cdef Stop stop
        # A compressed entry was checked before its payload was requested.
        if payload == NULL:
            if not entry_crc_matches(at, size):
                return STOP_CRC
            if not offsets_follow(at, &self._lower, self._end):
                return STOP_ORDER
        if at[AT_MAGIC] == 2:
            attributes = <int16_t>load16(at + AT_ATTRIBUTES)
            packed = attributes & CODEC_BITS
            last_offset += <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
        else:
            attributes = 0
            packed = at[MSG_ATTRIBUTES] & MSG_CODEC_BITS
        if attributes & CONTROL_BIT:
            if packed and payload == NULL:
                return STOP_PAYLOAD
            if not begin_records(&self._cursor, at, size, payload, payload_size):
                return STOP_RECORDS
            kind = marker_kind(&self._cursor)
            if kind == -2:
                return STOP_RECORDS
            self._transactions.marker_read(<int64_t>load64(at + AT_PRODUCER_ID), kind, last_offset)
            self.records += 1
        else:
            # For a compressed batch this is called twice, which changes nothing.
            aborted = at[AT_MAGIC] == 2 and self._transactions.batch_read(
                <int64_t>load64(at + AT_PRODUCER_ID), attributes & TRANSACTIONAL_BIT, last_offset
            )
            if not aborted and last_offset >= self._start_offset:
                if packed and payload == NULL:
                    return STOP_PAYLOAD
                if not begin_records(&self._cursor, at, size, payload, payload_size):
                    return STOP_RECORDS
                stop = self._put_keys()
                if stop != STOP_END:
                    return stop
        if last_offset >= self._start_offset:
            self.latest_offset = last_offset
        return STOP_MEMORY if self._transactions.out_of_memory else STOP_END

    cdef Stop _put_keys(self) noexcept nogil:
        cdef KeyHash hashes[WINDOW]
        cdef int64_t offsets[WINDOW]
        cdef KeyedRecord record
        cdef int i, waiting
        cdef bint more = True
        while more:
            waiting = 0
            while waiting < WINDOW:
                more = next_record(&self._cursor, &record)
                if not more:
                    break
                self.records += 1
                if record.key != NULL and record.offset >= self._start_offset:
                    hashes[waiting] = self._keys.hash_of(record.key, record.key_length)
                    self._keys.prefetch(&hashes[waiting])
                    offsets[waiting] = record.offset
                    waiting += 1
            if self._cursor.fault:
                return STOP_RECORDS
            for i in range(waiting):
                if self._keys.put_hashed(&hashes[i], offsets[i]) == PUT_FULL:
                    return STOP_FULL
                self.latest_offset = offsets[i]
        return STOP_END
