"""Turns batches of any format into Arrow-ready columns, for exports and for readers of topics as tables.

A ColumnBuilder is fed buffers of complete batches and returns columns of limited size. A column's memory has Arrow's
layout (values, offsets, validity bits), so that it becomes an Arrow array without a copy:
`pyarrow.py_buffer(column.data)`. Only the requested columns are collected. The GIL is held only while batches are
decompressed, and the decompression releases it.
"""

cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memset

from kafkapy._ext.arrow_memory cimport (
    ByteColumn, Growing, free_bytes, free_memory, put8, put16, put32, put64, put_bytes, put_text, taken_bytes,
    taken_memory,
)
from kafkapy._ext.stored_records cimport (
    STORED_BATCH, STORED_BEHIND, STORED_DAMAGE, STORED_END, STORED_MORE, STORED_RECORD, Stored, StoredBatch,
    StoredRecords,
)
from kafkapy._ext.varint cimport get_varint32

from collections import namedtuple

from kafkapy._ext.arrow_memory import Memory

# A set of columns; its memory is read-only, and lives as long as anything refers to it.
Bytes = namedtuple("Bytes", "offsets data validity nulls")
Headers = namedtuple("Headers", "offsets names values")
Columns = namedtuple("Columns", "rows size without_timestamp columns")

# Name -> bit, in the order in which columns are returned.
COLUMNS = {
    "partition": COL_PARTITION,
    "offset": COL_OFFSET,
    "timestamp": COL_TIMESTAMP,
    "timestamp_type": COL_TIMESTAMP_TYPE,
    "key": COL_KEY,
    "value": COL_VALUE,
    "headers": COL_HEADERS,
    "producer_id": COL_PRODUCER_ID,
    "producer_epoch": COL_PRODUCER_EPOCH,
    "sequence": COL_SEQUENCE,
    "leader_epoch": COL_LEADER_EPOCH,
    "attributes": COL_ATTRIBUTES,
}
# Index in `_fixed` of each numeric column.
cdef dict _PLACES = {
    "partition": 0, "offset": 1, "timestamp": 2, "timestamp_type": 3, "producer_id": 4, "producer_epoch": 5,
    "sequence": 6, "leader_epoch": 7, "attributes": 8,
}

cdef enum:
    NUMBERS = 9
    ABORT = 0                   # the type of an abort marker
    # An offset of 4 bytes counts up to 2^31 - 1. A single record, which is always added, is smaller than that.
    MOST_BYTES = 0x7FFFFFFF

cdef int64_t LEAST = -<int64_t>0x7FFFFFFFFFFFFFFF - 1
cdef int64_t MOST = 0x7FFFFFFFFFFFFFFF


# Read one length and its bytes in a record that was checked before; a negative length sets `start` to NULL.
cdef inline const uint8_t *_field(const uint8_t *at, const uint8_t *end, const uint8_t **start,
                                  int32_t *length) noexcept nogil:
    at += get_varint32(at, end, length)
    if length[0] < 0:
        length[0] = 0
        start[0] = NULL
        return at
    start[0] = at
    return at + length[0]


@cython.final
cdef class ColumnBuilder:
    """Collects the records of batches as columns.

    decompress(codec, view, magic): yields a batch's records in pieces, raises ValueError (use that of
        kafkapy.record.columns; only tests pass another).
    names: the requested columns, of COLUMNS.
    max_rows, max_bytes: the limits of one set of columns. A single record is always added, whatever its size; headers
        that are not UTF-8 may take up to three times their bytes.
    large_offsets: offsets into keys and values have 8 bytes instead of 4.
    skip_control: omit control batches (transaction markers).
    min_offset, end_offset, min_timestamp, end_timestamp: only records in these ranges; the ends are exclusive.
    aborted: (producer id, first offset) of the aborted transactions whose records are omitted; see `set_aborted`.
    partition: the value of the column `partition`.
    check_crc: raise DamagedBatch for batches with a wrong CRC.
    """

    def __cinit__(
        self,
        decompress,
        names=tuple(COLUMNS),
        *,
        int64_t max_rows=1 << 17,
        int64_t max_bytes=32 << 20,
        bint large_offsets=False,
        bint skip_control=True,
        min_offset=None,
        end_offset=None,
        min_timestamp=None,
        end_timestamp=None,
        aborted=(),
        int32_t partition=-1,
        bint check_crc=True,
    ) -> None:
        # First of all, since __dealloc__ also runs if an argument is rejected below.
        memset(self._fixed, 0, sizeof(self._fixed))
        memset(&self._key, 0, sizeof(ByteColumn))
        memset(&self._value, 0, sizeof(ByteColumn))
        memset(&self._header_lists, 0, sizeof(Growing))
        memset(&self._header_names, 0, sizeof(ByteColumn))
        memset(&self._header_values, 0, sizeof(ByteColumn))
        if unknown := set(names) - set(COLUMNS):
            raise ValueError(f"there is no column {sorted(unknown)[0]!r}; there are {', '.join(COLUMNS)}")
        if max_rows < 1 or max_bytes < 1 or max_bytes > MOST_BYTES:
            raise ValueError(f"the limits of {max_rows} rows and {max_bytes} bytes are not possible")
        self._walk = StoredRecords.__new__(StoredRecords, decompress, check_crc)
        self._names = tuple(name for name in COLUMNS if name in names)
        self._columns = sum(COLUMNS[name] for name in self._names)
        self._width = 8 if large_offsets else 4
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._skip_control = skip_control
        self._min_offset = LEAST if min_offset is None else min_offset
        self._max_offset = MOST if end_offset is None else end_offset - 1
        self._walk.last_wanted = self._max_offset
        self._min_timestamp = LEAST if min_timestamp is None else min_timestamp
        self._max_timestamp = MOST if end_timestamp is None else end_timestamp - 1
        self._partition = partition
        self.set_aborted(aborted)

    def __dealloc__(self) -> None:
        self._free()

    cdef void _free(self) noexcept:
        cdef int i
        for i in range(NUMBERS):
            free_memory(&self._fixed[i])
        free_memory(&self._header_lists)
        free_bytes(&self._key)
        free_bytes(&self._value)
        free_bytes(&self._header_names)
        free_bytes(&self._header_values)

    def set_aborted(self, aborted) -> None:
        """Replace the list of aborted transactions by that of the next Fetch response."""
        self._aborted = AbortedTransactions(aborted)

    @property
    def consumed(self) -> int:
        """The end of the last batch read from the buffer. What follows is an incomplete batch, or past the end offset.

        After a DamagedBatch: where the damaged batch begins.
        """
        return self._walk.batch.position if self._in_batch else self._walk.position

    def feed(self, buffer, Py_ssize_t position=0):
        """Read the batches of a buffer from byte `position` on; yield Columns each time that they are full.

        Iterate to the end before the next `feed`. Raises DamagedBatch; the records read before it are kept.
        """
        self._in_batch = self._pending = False
        self._walk.open(buffer, position)
        try:
            while self._advance():
                yield self._take()
        finally:
            self._walk.close()

    def finish(self):
        """Return the remaining rows as Columns, or None if there are none."""
        return self._take() if self.rows else None

    cdef int _advance(self) except -1:
        """Continue in the buffer: return 1 when the columns are full, 0 at the buffer's end."""
        cdef Stored found
        while True:
            with nogil:
                found = self._run()
            if self._no_memory or self._aborted.failed:
                raise MemoryError
            if found == STORED_RECORD:
                return 1
            if found == STORED_DAMAGE:
                raise self._walk.damage()
            if found != STORED_MORE:
                return 0
            self._walk.fill()

    cdef Stored _run(self) noexcept nogil:
        """Add records until the columns are full (STORED_RECORD) or the walk needs help or ends."""
        cdef Stored found
        cdef int64_t size
        while True:
            if not self._pending:
                if not self._in_batch:
                    found = self._walk.next_batch()
                    if found == STORED_BEHIND:
                        self.past_end = True
                    if found != STORED_BATCH:
                        return found
                    if not self._begin_batch():
                        continue
                found = self._walk.next_record()
                if found == STORED_END:
                    self._in_batch = False
                    continue
                if found != STORED_RECORD:
                    return found
                if not self._selected():
                    continue
            size = self._row_size()
            if self.rows and (self.rows == self._max_rows or self.size + size > self._max_bytes):
                self._pending = True
                return STORED_RECORD
            self._pending = False
            self.size += size
            if not self._append():
                self._no_memory = True
                return STORED_END

    cdef bint _begin_batch(self) noexcept nogil:
        """Decide about the batch; return True if its records have to be read."""
        cdef StoredBatch *batch = &self._walk.batch
        self.batches += 1
        self._dropped = self._aborted.drops(batch) or (batch.control and self._skip_control)
        if batch.last_offset < self._min_offset:
            self._dropped = True
        if batch.count >= 0 and batch.base_offset > self._max_offset:
            self._dropped = self.past_end = True
        if batch.magic == 2 and batch.max_timestamp < self._min_timestamp:
            self._dropped = True
        # The records of control batches are read even if they are dropped: the marker's type is in its record.
        self._in_batch = batch.control or not self._dropped
        return self._in_batch

    cdef bint _selected(self) noexcept nogil:
        if self._walk.batch.control and self._walk.record.key_length >= 4:
            if self._walk.record.key[2] == 0 and self._walk.record.key[3] == ABORT:
                self._aborted.ended(self._walk.batch.producer_id)
        return (
            not self._dropped
            and self._min_offset <= self._walk.offset <= self._max_offset
            and self._min_timestamp <= self._walk.timestamp <= self._max_timestamp
        )

    cdef int64_t _row_size(self) noexcept nogil:
        """Return about how many bytes a row takes; headers count as in the batch."""
        cdef int64_t size = 0
        if self._columns & COL_KEY:
            size += self._walk.record.key_length
        if self._columns & COL_VALUE:
            size += self._walk.record.value_length
        if self._columns & COL_HEADERS:
            size += self._walk.record.end - self._walk.record.headers
        return size + 8

    cdef bint _append(self) noexcept nogil:
        cdef int columns = self._columns
        self.rows += 1
        if columns & COL_PARTITION and not put32(&self._fixed[0], self._partition):
            return False
        if columns & COL_OFFSET and not put64(&self._fixed[1], self._walk.offset):
            return False
        if columns & COL_TIMESTAMP:
            if not put64(&self._fixed[2], self._walk.timestamp):
                return False
            if self._walk.timestamp == -1:
                self._without_timestamp += 1
        if columns & COL_TIMESTAMP_TYPE and not put8(&self._fixed[3], self._walk.batch.timestamp_type):
            return False
        if columns & COL_KEY:
            if not put_bytes(&self._key, self._width, self._walk.record.key, self._walk.record.key_length):
                return False
        if columns & COL_VALUE:
            if not put_bytes(&self._value, self._width, self._walk.record.value, self._walk.record.value_length):
                return False
        if columns & COL_HEADERS and not self._append_headers():
            return False
        if columns & COL_PRODUCER_ID and not put64(&self._fixed[4], self._walk.batch.producer_id):
            return False
        if columns & COL_PRODUCER_EPOCH and not put16(&self._fixed[5], self._walk.batch.producer_epoch):
            return False
        if columns & COL_SEQUENCE and not put32(&self._fixed[6], self._walk.sequence):
            return False
        if columns & COL_LEADER_EPOCH and not put32(&self._fixed[7], self._walk.batch.leader_epoch):
            return False
        if columns & COL_ATTRIBUTES and not put16(&self._fixed[8], self._walk.batch.attributes):
            return False
        return True

    cdef bint _append_headers(self) noexcept nogil:
        cdef const uint8_t *at = self._walk.record.headers
        cdef const uint8_t *end = self._walk.record.end
        cdef const uint8_t *start
        cdef int32_t length = 0, i
        if self._header_lists.size == 0 and not put32(&self._header_lists, 0):
            return False
        for i in range(self._walk.record.header_count):
            at = _field(at, end, &start, &length)
            if not put_text(&self._header_names, start, length):
                return False
            at = _field(at, end, &start, &length)
            if not put_bytes(&self._header_values, 4, start, length):
                return False
        return put32(&self._header_lists, <int32_t>self._header_names.rows)

    cdef object _take(self):
        """Return the collected rows as Columns, and start over with none."""
        columns = {}
        for name in self._names:
            if name == "key":
                columns[name] = Bytes(*taken_bytes(&self._key, self._width))
            elif name == "value":
                columns[name] = Bytes(*taken_bytes(&self._value, self._width))
            elif name == "headers":
                columns[name] = Headers(
                    taken_memory(&self._header_lists),
                    Bytes(*taken_bytes(&self._header_names, 4)),
                    Bytes(*taken_bytes(&self._header_values, 4)),
                )
            else:
                columns[name] = taken_memory(&self._fixed[<int>_PLACES[name]])
        made = Columns(self.rows, self.size, self._without_timestamp, columns)
        self.rows = self.size = self._without_timestamp = 0
        return made
