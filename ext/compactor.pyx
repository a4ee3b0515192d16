"""The second pass of a cleaning, without the GIL; see compactor.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA, AT_LENGTH,
    AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, CODEC_BITS, CONTROL_BIT, DELETE_HORIZON_BIT,
    HEADER_SIZE, KNOWN_BITS, LENGTH_END, LOOK_PARTIAL, LOOK_WHOLE, TRANSACTIONAL_BIT, Look, store_crc,
)
from kafkapy._ext.cursor cimport Writer, load16, load32, load64, store16, store32, store64
from kafkapy._ext.entries cimport entry_crc_matches, look_entry
from kafkapy._ext.key_index cimport (
    STOP_CRC, STOP_END, STOP_ENTRY, STOP_LARGE, STOP_MEMORY, STOP_ORDER, STOP_PACKED, STOP_PAYLOAD, STOP_RECORDS,
    WINDOW, explain_stop, marker_kind, offsets_follow,
)
from kafkapy._ext.keyed_records cimport begin_records, next_record
from kafkapy._ext.keymap cimport KeyHash
from kafkapy._ext.legacy cimport (
    MSG_APPEND_TIME_BIT, MSG_ATTRIBUTES, MSG_CODEC_BITS, MSG_TIMESTAMP, put_message,
)
from kafkapy._ext.varint cimport put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64

from kafkapy._ext.key_index import CorruptEntry

cdef enum:
    RECORD_GROWTH = 20          # length, timestamp delta and offset delta of a record can grow to 5, 10 and 5 bytes
    MESSAGE_GROWTH = 8          # a message of format 0 gets a timestamp in a wrapper of format 1
    MAX_BODY = 0x7FFFFFFF
    KEEP_ROOM = 4096


# Ensure capacity for n more bytes, without counting them as written. Return False if there is no memory.
cdef bint _room(Writer writer, Py_ssize_t n) noexcept nogil:
    if n <= writer.room - writer.size:
        return True
    with gil:
        try:
            writer.grow(n)
        except MemoryError:
            return False
    return True


# Return the position of the key length in a record that read_record has accepted.
cdef inline const uint8_t *_after_offset(const uint8_t *at) noexcept nogil:
    cdef int field
    for field in range(4):
        if field == 1:
            at += 1                     # attributes: one byte, not a varint
            continue
        while at[0] >= 0x80:
            at += 1
        at += 1
    return at


cdef bint _is_packed(const uint8_t *at) noexcept nogil:
    if at[AT_MAGIC] == 2:
        return load16(at + AT_ATTRIBUTES) & CODEC_BITS
    return at[MSG_ATTRIBUTES] & MSG_CODEC_BITS


@cython.final
cdef class Compactor:
    """Keeps the last record of each key in `keys` and all records above offset `mapped_to`.

    `now` is the time of the cleaning. `delete_retention` is how long tombstones and no longer needed markers stay after
    their first cleaning. Both are in ms. Feed a Compactor the entries of a log in order; call `begin_segment` before
    each segment.
    """

    def __cinit__(
        self,
        KeyMap keys not None,
        DecidedTransactions transactions not None,
        *,
        int64_t mapped_to,
        int64_t now,
        int64_t delete_retention,
    ):
        self._keys = keys
        self._transactions = transactions
        self._mapped_to = mapped_to
        self._now = now
        self._delete_retention = delete_retention
        self.out = Writer(65536)
        self.unpacked = Writer(1024)
        self._keep = <uint8_t *>PyMem_RawMalloc(KEEP_ROOM)
        if self._keep == NULL:
            raise MemoryError("no memory for a cleaning")
        self._keep_room = KEEP_ROOM

    def __dealloc__(self):
        PyMem_RawFree(self._keep)
        PyMem_RawFree(self._producers)

    def begin_segment(self, int64_t base_offset, int64_t end, bint keep_old_tombstones, producers) -> None:
        """Begin a segment: the next entries have offsets from `base_offset` to `end`, which is exclusive.

        keep_old_tombstones: True if tombstones of formats 0 and 1 stay; these formats have no delete horizon.
        producers: (id, last data offset or -1, epoch) of each producer that the log remembers.
        """
        cdef Py_ssize_t i, count
        cdef LastRecord *table
        ordered = sorted(producers)
        count = len(ordered)
        table = <LastRecord *>PyMem_RawMalloc((count + 1) * sizeof(LastRecord))
        if table == NULL:
            raise MemoryError(f"no memory for {count} producers")
        PyMem_RawFree(self._producers)
        self._producers = table
        self._producer_count = 0
        for i in range(count):
            table[i].producer_id, table[i].last_data_offset, table[i].epoch = ordered[i]
        self._producer_count = count
        self._keep_old_tombstones = keep_old_tombstones
        self._lower = base_offset
        self._end = end

    def feed(self, buffer, Py_ssize_t position, payload=None) -> bool:
        """Process the complete entries of `buffer` from `position` on; the attribute `position` says how far.

        Return True if the entry at `position` needs decompression or compression. If `unpacked` is empty, call `feed`
        again from there with the entry's decompressed payload. Otherwise compress `unpacked` and pass the result to
        `packed`. Raises CorruptEntry, MemoryError.
        """
        cdef Py_buffer held, whole
        cdef const uint8_t *data
        cdef Stop stop
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            if position < 0 or position > held.len:
                raise ValueError(f"byte {position} is outside of the {held.len} bytes")
            if position != self.position or payload is None:
                self._judged = False
            self.position = position
            self.unpacked.size = 0
            if payload is None:
                with nogil:
                    stop = self._walk(<const uint8_t *>held.buf, held.len, NULL, 0)
            else:
                PyObject_GetBuffer(payload, &whole, PyBUF_SIMPLE)
                try:
                    with nogil:
                        stop = self._walk(<const uint8_t *>held.buf, held.len, <const uint8_t *>whole.buf, whole.len)
                finally:
                    PyBuffer_Release(&whole)
            if stop == STOP_MEMORY:
                raise MemoryError("no memory for a cleaning")
            if stop != STOP_END and stop != STOP_PAYLOAD and stop != STOP_PACKED:
                data = <const uint8_t *>held.buf
                raise CorruptEntry(explain_stop(stop, &self._cursor, data, self.position, held.len))
            return stop != STOP_END
        finally:
            PyBuffer_Release(&held)

    def packed(self, buffer, compressed) -> None:
        """Write the entry at `position` with its records compressed from `unpacked`, and move to the next entry."""
        cdef Py_buffer held, body
        cdef const uint8_t *at
        cdef uint8_t *to
        cdef int64_t size
        cdef int8_t attributes
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(compressed, &body, PyBUF_SIMPLE)
            try:
                at = <const uint8_t *>held.buf + self.position
                if body.len > MAX_BODY - HEADER_SIZE:
                    raise CorruptEntry(f"{body.len} compressed bytes exceed the size of a batch")
                self.out.reserve(body.len + HEADER_SIZE)
                to = self.out.data + self.out.size
                if at[AT_MAGIC] == 2:
                    size = HEADER_SIZE + body.len
                    with nogil:
                        memcpy(to + HEADER_SIZE, body.buf, body.len)
                        self._put_header(to, at, size)
                else:
                    attributes = <int8_t>at[MSG_ATTRIBUTES]
                    with nogil:
                        size = put_message(
                            to, at[AT_MAGIC], self._kept.last_offset,
                            attributes & (MSG_CODEC_BITS | (MSG_APPEND_TIME_BIT if at[AT_MAGIC] else 0)),
                            self._wrapper_timestamp(at), NULL, 0, <const uint8_t *>body.buf, <int32_t>body.len,
                        )
                self.out.size += size
                self._step(at)
                self.unpacked.size = 0
            finally:
                PyBuffer_Release(&body)
        finally:
            PyBuffer_Release(&held)

    # --- entry by entry

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
            self._step(data + self.position)
            payload = NULL

    cdef void _step(self, const uint8_t *at) noexcept nogil:
        cdef int64_t size = <int64_t><int32_t>load32(at + AT_LENGTH) + LENGTH_END
        self.position += size
        self.bytes_read += size
        self._judged = False

    cdef Stop _entry(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        cdef Stop stop
        cdef bint batch = at[AT_MAGIC] == 2, horizon_due
        if not self._judged:
            stop = self._judge(at, size, payload, payload_size)
            if stop != STOP_END:
                return stop
            self._judged = True
        self._kept.records = 0
        if self._verdict.drop_records:
            self.records_read += <int32_t>load32(at + AT_COUNT)
        else:
            if payload == NULL and _is_packed(at):
                return STOP_PAYLOAD
            if not begin_records(&self._cursor, at, size, payload, payload_size):
                return STOP_RECORDS
            stop = self._choose(at)
            if stop != STOP_END:
                return stop
        self.records_kept += self._kept.records
        if self._kept.records:
            horizon_due = batch and (self._kept.tombstones or self._verdict.marker_needless) and not (
                load16(at + AT_ATTRIBUTES) & DELETE_HORIZON_BIT
            )
            if not self._kept.all or horizon_due:
                if batch:
                    return self._rebuild_batch(at, size, payload, payload_size)
                return self._rebuild_set(at, size, payload, payload_size)
            if not _room(self.out, size):
                return STOP_MEMORY
            memcpy(self.out.data + self.out.size, at, size)
            self.out.size += size
        elif self._verdict.keep_empty:
            if not _room(self.out, HEADER_SIZE):
                return STOP_MEMORY
            self._put_empty(self.out.data + self.out.size, at)
            self.out.size += HEADER_SIZE
        return STOP_END

    cdef Stop _judge(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        """Set `_verdict`. Called once for each entry, since it also advances the state of the transactions."""
        cdef int64_t last_offset, producer_id
        cdef int16_t attributes
        cdef const LastRecord *last
        cdef bint needless
        cdef int kind
        self._verdict.keep_empty = self._verdict.drop_records = self._verdict.marker_needless = False
        # A compressed entry was checked before its payload was requested.
        if payload == NULL:
            if not entry_crc_matches(at, size):
                return STOP_CRC
            if not offsets_follow(at, &self._lower, self._end):
                return STOP_ORDER
        if at[AT_MAGIC] != 2:
            return STOP_END
        attributes = <int16_t>load16(at + AT_ATTRIBUTES)
        producer_id = <int64_t>load64(at + AT_PRODUCER_ID)
        last_offset = <int64_t>load64(at) + <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
        if attributes & CONTROL_BIT:
            if payload == NULL and attributes & CODEC_BITS:
                return STOP_PAYLOAD
            if not begin_records(&self._cursor, at, size, payload, payload_size):
                return STOP_RECORDS
            kind = marker_kind(&self._cursor)
            if kind == -2:
                return STOP_RECORDS
            needless = self._transactions.marker_read(producer_id, kind, last_offset)
            self._verdict.marker_needless = needless
            # Like a tombstone, the marker stays until its delete horizon.
            self._verdict.drop_records = (
                needless
                and attributes & DELETE_HORIZON_BIT
                and <int64_t>load64(at + AT_BASE_TIMESTAMP) <= self._now
            )
        else:
            self._verdict.drop_records = self._transactions.batch_read(
                producer_id, attributes & TRANSACTIONAL_BIT, last_offset
            )
        if self._transactions.out_of_memory:
            return STOP_MEMORY
        if producer_id >= 0:
            last = self._producer(producer_id)
            if last != NULL:
                if last.last_data_offset >= 0:
                    self._verdict.keep_empty = last_offset == last.last_data_offset
                else:
                    # The producer has written only markers: the last one stays, for its epoch.
                    self._verdict.keep_empty = (
                        attributes & CONTROL_BIT and <int16_t>load16(at + AT_PRODUCER_EPOCH) == last.epoch
                    )
        return STOP_END

    cdef const LastRecord *_producer(self, int64_t producer_id) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self._producer_count, middle
        while low < high:
            middle = (low + high) >> 1
            if self._producers[middle].producer_id < producer_id:
                low = middle + 1
            else:
                high = middle
        if low < self._producer_count and self._producers[low].producer_id == producer_id:
            return &self._producers[low]
        return NULL

    # --- which records of an entry stay

    cdef Stop _choose(self, const uint8_t *at) noexcept nogil:
        """Set `_keep` to 1 for every record that stays, and `_kept`."""
        cdef KeyedRecord records[WINDOW]
        cdef KeyHash hashes[WINDOW]
        cdef int64_t last_of_key
        cdef int32_t done = 0
        cdef int i, waiting
        cdef bint more = True, stays
        cdef bint control = at[AT_MAGIC] == 2 and load16(at + AT_ATTRIBUTES) & CONTROL_BIT
        cdef uint8_t *flags
        cdef Kept *kept = &self._kept
        kept.first_timestamp = kept.max_timestamp = kept.first_offset = kept.last_offset = -1
        kept.all = True
        kept.tombstones = False
        while more:
            waiting = 0
            while waiting < WINDOW:
                more = next_record(&self._cursor, &records[waiting])
                if not more:
                    break
                if records[waiting].key != NULL and records[waiting].offset <= self._mapped_to and not control:
                    hashes[waiting] = self._keys.hash_of(records[waiting].key, records[waiting].key_length)
                    self._keys.prefetch(&hashes[waiting])
                waiting += 1
            if self._cursor.fault:
                return STOP_RECORDS
            if done + waiting > self._keep_room:
                flags = <uint8_t *>PyMem_RawRealloc(self._keep, self._keep_room * 2)
                if flags == NULL:
                    return STOP_MEMORY
                self._keep = flags
                self._keep_room *= 2
            for i in range(waiting):
                if control or records[i].offset > self._mapped_to:
                    stays = True
                elif records[i].key == NULL:
                    self.keyless += 1
                    stays = False
                else:
                    last_of_key = self._keys.get_hashed(&hashes[i])
                    stays = self._stays(at, &records[i], last_of_key)
                self._keep[done + i] = stays
                if not stays:
                    kept.all = False
                    continue
                if records[i].other_magic:
                    kept.all = False
                if records[i].value == NULL:
                    kept.tombstones = True
                if kept.records == 0:
                    kept.first_timestamp = records[i].timestamp
                    kept.first_offset = records[i].offset
                if records[i].timestamp > kept.max_timestamp:
                    kept.max_timestamp = records[i].timestamp
                kept.last_offset = records[i].offset
                kept.records += 1
            done += waiting
        self.records_read += done
        return STOP_END

    cdef bint _stays(self, const uint8_t *at, const KeyedRecord *record, int64_t last_of_key) noexcept nogil:
        if record.offset < last_of_key:
            return False
        if record.value != NULL:
            return True
        if at[AT_MAGIC] != 2:
            return self._keep_old_tombstones
        return not (load16(at + AT_ATTRIBUTES) & DELETE_HORIZON_BIT) or self._now < <int64_t>load64(
            at + AT_BASE_TIMESTAMP
        )

    # --- rewriting an entry

    cdef int64_t _base_timestamp(self, const uint8_t *at) noexcept nogil:
        """Return the base timestamp of the rewritten batch: its delete horizon if it has or gets one."""
        if load16(at + AT_ATTRIBUTES) & DELETE_HORIZON_BIT:
            return <int64_t>load64(at + AT_BASE_TIMESTAMP)
        if self._kept.tombstones or self._verdict.marker_needless:
            return self._now + self._delete_retention
        return self._kept.first_timestamp

    cdef void _put_header(self, uint8_t *to, const uint8_t *at, int64_t size) noexcept nogil:
        """Write the header and CRC of the rewritten batch at `to`, after its records; `at` is the original batch."""
        cdef uint16_t attributes = load16(at + AT_ATTRIBUTES) & KNOWN_BITS
        if self._kept.tombstones or self._verdict.marker_needless:
            attributes |= DELETE_HORIZON_BIT
        memcpy(to, at, HEADER_SIZE)
        store32(to + AT_LENGTH, <uint32_t>(size - LENGTH_END))
        store16(to + AT_ATTRIBUTES, attributes)
        store64(to + AT_BASE_TIMESTAMP, <uint64_t>self._base_timestamp(at))
        if not attributes & APPEND_TIME_BIT:
            store64(to + AT_MAX_TIMESTAMP, <uint64_t>self._kept.max_timestamp)
        store32(to + AT_COUNT, <uint32_t>self._kept.records)
        store_crc(to, size)

    cdef void _put_empty(self, uint8_t *to, const uint8_t *at) noexcept nogil:
        """Write the header of the batch at `at`, without records: no codec, base timestamp or delete horizon."""
        memcpy(to, at, HEADER_SIZE)
        store32(to + AT_LENGTH, HEADER_SIZE - LENGTH_END)
        store16(
            to + AT_ATTRIBUTES, load16(at + AT_ATTRIBUTES) & (APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        )
        store64(to + AT_BASE_TIMESTAMP, <uint64_t>-1)
        store32(to + AT_COUNT, 0)
        store_crc(to, HEADER_SIZE)

    cdef Stop _rebuild_batch(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        cdef Py_ssize_t growth = <Py_ssize_t>self._kept.records * RECORD_GROWTH
        cdef uint8_t *begin
        cdef uint8_t *end
        if payload != NULL:
            if not _room(self.unpacked, payload_size + growth):
                return STOP_MEMORY
            end = self._put_records(self.unpacked.data, at, size, payload, payload_size)
            if end == NULL:
                return STOP_LARGE
            self.unpacked.size = end - self.unpacked.data
            return STOP_PACKED
        if not _room(self.out, size + growth):
            return STOP_MEMORY
        begin = self.out.data + self.out.size
        end = self._put_records(begin + HEADER_SIZE, at, size, NULL, 0)
        if end == NULL:
            return STOP_LARGE
        self._put_header(begin, at, end - begin)
        self.out.size = end - self.out.data
        return STOP_END

    cdef uint8_t *_put_records(
        self, uint8_t *to, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        """Write the records that stay of the batch at `at`; return their end, or NULL if they are too large."""
        cdef KeyedRecord record
        cdef int64_t base = self._base_timestamp(at), base_offset = <int64_t>load64(at + AT_BASE_OFFSET)
        cdef int64_t delta, body, whole
        cdef int32_t offset_delta
        cdef const uint8_t *tail
        cdef uint8_t *begin = to
        begin_records(&self._cursor, at, size, payload, payload_size)
        while next_record(&self._cursor, &record):
            if not self._keep[self._cursor.index - 1]:
                continue
            delta = <int64_t>(<uint64_t>record.timestamp - <uint64_t>base)
            offset_delta = <int32_t>(record.offset - base_offset)
            # Key, value and headers are copied unchanged, from the key length on.
            tail = _after_offset(record.at)
            whole = record.end - tail
            body = 1 + size_of_varint(delta) + size_of_varint(offset_delta) + whole
            if body > MAX_BODY - HEADER_SIZE - (to - begin):
                return NULL
            to += put_uvarint32(to, zigzag32(<int32_t>body))
            to[0] = 0
            to += 1
            to += put_uvarint64(to, zigzag64(delta))
            to += put_uvarint32(to, zigzag32(offset_delta))
            memcpy(to, tail, whole)
            to += whole
        return to

    cdef int64_t _wrapper_timestamp(self, const uint8_t *at) noexcept nogil:
        if at[AT_MAGIC] and at[MSG_ATTRIBUTES] & MSG_APPEND_TIME_BIT:
            return <int64_t>load64(at + MSG_TIMESTAMP)
        return self._kept.max_timestamp

    cdef Stop _rebuild_set(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil:
        """Write the messages that stay of a wrapper, in its format; in format 1 with offsets relative to the first."""
        cdef KeyedRecord record
        cdef int magic = at[AT_MAGIC]
        cdef int8_t attributes = at[MSG_ATTRIBUTES] & MSG_APPEND_TIME_BIT if magic else 0
        cdef int64_t first = self._kept.first_offset if magic else 0
        cdef uint8_t *to
        if not _room(self.unpacked, payload_size + <Py_ssize_t>self._kept.records * MESSAGE_GROWTH):
            return STOP_MEMORY
        to = self.unpacked.data
        begin_records(&self._cursor, at, size, payload, payload_size)
        while next_record(&self._cursor, &record):
            if self._keep[self._cursor.index - 1]:
                to += put_message(
                    to, magic, record.offset - first, attributes, record.timestamp,
                    record.key, record.key_length, record.value, record.value_length,
                )
        self.unpacked.size = to - self.unpacked.data
        return STOP_PACKED
