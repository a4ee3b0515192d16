"""Encodes rows of Arrow columns as records in batches (format 2, Kafka's DefaultRecord), without Python objects for
rows and without the GIL.

Each partition has one open batch, encoded straight into the memory that is handed over when the batch is full. CRC and
producer are missing in its header; the sender sets them (`kafkapy._ext.batch.seal`).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kafkapy._ext.batch cimport (
    AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP,
    AT_PRODUCER_ID, HEADER_SIZE, LENGTH_END,
)
from kafkapy._ext.cursor cimport store32, store64
from kafkapy._ext.murmur2 cimport partition_for
from kafkapy._ext.varint cimport put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64

cdef enum:
    MOST_PARTITIONS = 1000000
    LARGEST_BODY = 0x7FFFFF00   # a record and the batch header must fit into the 2 GiB of a batch
    FIRST_ROOM = 4096
    LONGEST_LENGTH = 5          # bytes of a record's length field

# Why `_encode` returned.
cdef enum:
    AT_END = 0
    IS_FULL = 1
    NEEDS_ROOM = 2
    NO_PARTITION = 3            # the topic does not have the row's partition
    NO_HEADER_KEY = 4
    TOO_LARGE = 5
    BAD_OFFSETS = 6             # a column's offsets descend or exceed its data


class BadRow(ValueError):
    """A row that cannot be encoded: `row` is its index in the Rows, `reason` the end of the sentence "row N ..."."""

    def __init__(self, row, reason):
        super().__init__(f"row {row} {reason}")
        self.row = row
        self.reason = reason


cdef int64_t MOST_ENTRIES = <int64_t>1 << 48    # more than memory can hold; sums of such numbers do not overflow
cdef uint8_t NOTHING = 0        # the address of empty bytes (NULL would be null)

# One entry of a column of bytes; `at` NULL: null.
ctypedef struct Piece:
    const uint8_t *at
    int64_t size


@cython.final
cdef class Rows:
    """The columns of one Arrow record batch, as their Arrow memory; None for a missing column.

    Args:
        count: number of rows.
        key, value, header_key, header_value: (validity or None, offsets, data or None, first, entries, width of an
            offset: 4 or 8); entry i of the column is entry `first + i` of the memory.
        headers: the same, without data and with a width of 4; the offsets say which header keys and values a row has.
        partition: (validity or None, int32 values, first); timestamp: the same with int64 values, in milliseconds.
        order: the indexes of the rows in encoding order, as uint64; None: in their own order.
    Raises ValueError if a buffer is too short for its column.
    """

    def __cinit__(
        self, int64_t count, key=None, value=None, headers=None, header_key=None, header_value=None, partition=None,
        timestamp=None, order=None,
    ):
        if not 0 <= count < MOST_ENTRIES:
            raise ValueError(f"{count} rows are not possible")
        self.count = count
        self._bytes(&self.key, key, count)
        self._bytes(&self.value, value, count)
        if headers is not None:
            self._bytes(&self.headers, headers, count)
            self._bytes(&self.header_key, header_key, 0)
            self._bytes(&self.header_value, header_value, 0)
            self.headers.bytes = min(self.header_key.entries, self.header_value.entries)
        self._numbers(&self.partition, partition, sizeof(int32_t))
        self._numbers(&self.timestamp, timestamp, sizeof(int64_t))
        self.order = self._hold(order, count * sizeof(uint64_t))

    def __dealloc__(self):
        while self._holds:
            self._holds -= 1
            PyBuffer_Release(&self._held[self._holds])

    cdef const uint8_t *_hold(self, object buffer, int64_t least) except? NULL:
        cdef Py_buffer *held
        if buffer is None:
            return NULL
        assert self._holds < MOST_HELD
        held = &self._held[self._holds]
        PyObject_GetBuffer(buffer, held, PyBUF_SIMPLE)
        self._holds += 1
        if held.len < least:
            raise ValueError(f"a column has {held.len} bytes where {least} are needed")
        return <const uint8_t *>held.buf if held.buf != NULL else &NOTHING

    cdef int _bytes(self, ByteInput *into, object column, int64_t least) except -1:
        if column is None:
            return 0
        validity, offsets, data, into.first, into.entries, into.width = column
        if not 0 <= into.first < MOST_ENTRIES or not least <= into.entries < MOST_ENTRIES or into.width not in (4, 8):
            raise ValueError(f"a column has {into.entries} entries from {into.first} on, but there are {least} rows")
        into.validity = self._hold(validity, (into.first + into.entries + 7) >> 3)
        into.offsets = self._hold(offsets, (into.first + into.entries + 1) * into.width)
        into.data = self._hold(data, 0)
        into.bytes = self._held[self._holds - 1].len if data is not None else 0
        return 0

    cdef int _numbers(self, NumberInput *into, object column, int size) except -1:
        if column is None:
            return 0
        validity, values, into.first = column
        if not 0 <= into.first < MOST_ENTRIES:
            raise ValueError(f"a column begins at {into.first}")
        into.validity = self._hold(validity, (into.first + self.count + 7) >> 3)
        into.values = self._hold(values, (into.first + self.count) * size)
        return 0


cdef inline bint _is_null(const uint8_t *validity, int64_t entry) noexcept nogil:
    return validity != NULL and not validity[entry >> 3] >> (entry & 7) & 1


cdef inline int64_t _offset(ByteInput *column, int64_t entry) noexcept nogil:
    cdef int32_t narrow
    cdef int64_t wide
    if column.width == 4:
        memcpy(&narrow, column.offsets + entry * 4, 4)
        return narrow
    memcpy(&wide, column.offsets + entry * 8, 8)
    return wide


cdef inline int64_t _row_at(Rows rows, int64_t place) noexcept nogil:
    cdef int64_t row = place
    if rows.order != NULL:
        memcpy(&row, rows.order + place * sizeof(uint64_t), sizeof(uint64_t))
    return row


# Read entry `index` of a column; return False if its offsets are invalid.
cdef inline bint _piece(ByteInput *column, int64_t index, Piece *into) noexcept nogil:
    cdef int64_t entry = column.first + index, begin, end
    into.at = NULL
    into.size = 0
    if column.offsets == NULL or _is_null(column.validity, entry):
        return True
    begin = _offset(column, entry)
    end = _offset(column, entry + 1)
    if begin < 0 or end < begin or end > column.bytes:
        return False
    into.at = column.data + begin if column.data != NULL else &NOTHING
    into.size = end - begin
    return True


cdef inline int64_t _size_of(Piece *piece) noexcept nogil:
    return size_of_varint(piece.size) + piece.size if piece.at != NULL else 1


cdef inline uint8_t *_put(uint8_t *at, Piece *piece) noexcept nogil:
    if piece.at == NULL:
        at[0] = 1                       # a length of -1
        return at + 1
    at += put_uvarint32(at, zigzag32(<int32_t>piece.size))
    memcpy(at, piece.at, piece.size)
    return at + piece.size


# Return how many bytes the headers from `begin` to `end` take, or minus the reason why they cannot be encoded.
cdef int64_t _size_of_headers(Rows rows, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t size = size_of_varint(end - begin)
    cdef Piece piece
    while begin < end:
        if not _piece(&rows.header_key, begin, &piece):
            return -BAD_OFFSETS
        if piece.at == NULL:
            return -NO_HEADER_KEY
        size += _size_of(&piece)
        if not _piece(&rows.header_value, begin, &piece):
            return -BAD_OFFSETS
        size += _size_of(&piece)
        begin += 1
    return size


cdef uint8_t *_put_headers(uint8_t *at, Rows rows, int64_t begin, int64_t end) noexcept nogil:
    cdef Piece piece
    at += put_uvarint32(at, zigzag32(<int32_t>(end - begin)))
    while begin < end:
        _piece(&rows.header_key, begin, &piece)
        at = _put(at, &piece)
        _piece(&rows.header_value, begin, &piece)
        at = _put(at, &piece)
        begin += 1
    return at


@cython.final
cdef class TopicBatches:
    """The open batches of one topic, by partition.

    Args:
        partitions: number of partitions of the topic.
        batch_bytes: a batch is full if the next record would make it, header included, larger than this. The first
            record is always added.
    """

    def __cinit__(self, int32_t partitions, int64_t batch_bytes):
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"a topic cannot have {partitions} partitions")
        self.partitions = partitions
        self.full = -1
        self._batch_bytes = batch_bytes
        self._memory = [None] * partitions
        self._open = <OpenBatch *>calloc(partitions, sizeof(OpenBatch))
        if self._open == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._open)

    def append(self, Rows rows not None, int64_t at, int64_t end, int64_t now) -> int:
        """Encode the rows `at` to `end` of the encoding order until a batch is full; `now` is for rows without a
        timestamp.

        Return the index of the first row that is not encoded. If `full` is then not -1, call `take` for that partition
        and go on. Raises BadRow, with the rows before it encoded.
        """
        cdef int stop = AT_END
        cdef int64_t needed = 0
        if not 0 <= at <= end <= rows.count:
            raise ValueError(f"rows {at} to {end} are not among the {rows.count} rows")
        if not 0 <= self.sticky < self.partitions:
            raise ValueError(f"partition {self.sticky} is not among the topic's {self.partitions}")
        self.full = -1
        while True:
            with nogil:
                at = self._encode(rows, at, end, now, &stop, &needed)
            if stop == AT_END or stop == IS_FULL:
                return at
            if stop != NEEDS_ROOM:
                raise BadRow(_row_at(rows, at), self._explain(stop, needed))
            self._make_room(self.full, needed)
            self.full = -1

    def open_partitions(self) -> list[int]:
        """Return the partitions whose batches have records."""
        return [partition for partition in range(self.partitions) if self._open[partition].count]

    def take(self, int32_t partition) -> tuple[bytearray, int, int]:
        """End the batch of a partition that has records. Return its bytes without CRC and producer, the number of
        records, and the size of the largest record in bytes."""
        cdef OpenBatch *batch
        cdef bytearray memory
        cdef uint8_t *at
        cdef int32_t count
        if not 0 <= partition < self.partitions or not self._open[partition].count:
            raise ValueError(f"partition {partition} has no open batch")
        batch = &self._open[partition]
        count = batch.count
        at = batch.data
        memset(at, 0, HEADER_SIZE)
        store32(at + AT_LENGTH, <uint32_t>(batch.size - LENGTH_END))
        store32(at + AT_LEADER_EPOCH, <uint32_t>-1)
        at[AT_MAGIC] = 2
        store32(at + AT_LAST_OFFSET_DELTA, <uint32_t>(count - 1))
        store64(at + AT_BASE_TIMESTAMP, <uint64_t>batch.base_timestamp)
        store64(at + AT_MAX_TIMESTAMP, <uint64_t>batch.max_timestamp)
        memset(at + AT_PRODUCER_ID, 0xFF, AT_COUNT - AT_PRODUCER_ID)    # producer id, epoch and sequence: none
        store32(at + AT_COUNT, <uint32_t>count)
        memory = self._memory[partition]
        self._memory[partition] = None
        self.open_bytes -= batch.room
        PyByteArray_Resize(memory, batch.size)
        # The next batch will have about the same size.
        batch.room = min(self._batch_bytes, batch.size + (batch.size >> 2))
        batch.data = NULL
        batch.count = 0
        batch.size = 0
        return memory, count, batch.largest

    cdef int _make_room(self, int32_t partition, int64_t needed) except -1:
        cdef OpenBatch *batch = &self._open[partition]
        cdef int64_t room
        if batch.data == NULL:
            room = max(batch.room, FIRST_ROOM, needed)
            self._memory[partition] = PyByteArray_FromStringAndSize(NULL, room)
            batch.size = HEADER_SIZE
            batch.largest = 0
        else:
            room = max(batch.room * 2, needed)
            if needed <= self._batch_bytes < room:
                room = self._batch_bytes
            PyByteArray_Resize(self._memory[partition], room)
            self.open_bytes -= batch.room
        batch.data = <uint8_t *>PyByteArray_AS_STRING(self._memory[partition])
        batch.room = room
        self.open_bytes += room
        return 0

    cdef int64_t _encode(
        self, Rows rows, int64_t place, int64_t end, int64_t now, int *stop, int64_t *needed
    ) noexcept nogil:
        """Return the index of the first row that is not encoded, and in `stop` and `needed` why."""
        cdef Piece key, value
        cdef OpenBatch *batch
        cdef uint8_t *at
        cdef int64_t row, timestamp, delta, body, whole, begin = 0, after = 0, headers
        cdef int32_t partition
        while place < end:
            row = _row_at(rows, place)
            if not 0 <= row < rows.count or not _piece(&rows.key, row, &key) or not _piece(&rows.value, row, &value):
                stop[0] = BAD_OFFSETS
                return place

            if rows.partition.values != NULL and not _is_null(rows.partition.validity, rows.partition.first + row):
                memcpy(&partition, rows.partition.values + (rows.partition.first + row) * 4, 4)
                if not 0 <= partition < self.partitions:
                    needed[0] = partition
                    stop[0] = NO_PARTITION
                    return place
            elif key.at != NULL:
                partition = partition_for(key.at, key.size, self.partitions)
            else:
                partition = self.sticky
            batch = &self._open[partition]

            timestamp = now
            if rows.timestamp.values != NULL and not _is_null(rows.timestamp.validity, rows.timestamp.first + row):
                memcpy(&timestamp, rows.timestamp.values + (rows.timestamp.first + row) * 8, 8)
            delta = <int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp) if batch.count else 0

            headers = 1
            if rows.headers.offsets != NULL:
                if _is_null(rows.headers.validity, rows.headers.first + row):
                    begin = after = 0
                else:
                    begin = _offset(&rows.headers, rows.headers.first + row)
                    after = _offset(&rows.headers, rows.headers.first + row + 1)
                if begin < 0 or after < begin or after > rows.headers.bytes:
                    stop[0] = BAD_OFFSETS
                    return place
                headers = _size_of_headers(rows, begin, after)
                if headers < 0:
                    stop[0] = <int>-headers
                    return place

            body = 1 + size_of_varint(delta) + size_of_varint(batch.count) + _size_of(&key) + _size_of(&value) + headers
            if body > LARGEST_BODY:
                needed[0] = body
                stop[0] = TOO_LARGE
                return place
            whole = size_of_varint(body) + body
            if batch.count and (batch.size + whole > self._batch_bytes or batch.size + whole > LARGEST_BODY):
                self.full = partition
                stop[0] = IS_FULL
                return place
            if batch.data == NULL or batch.size + whole > batch.room:
                self.full = partition
                needed[0] = max(batch.size, HEADER_SIZE) + whole
                stop[0] = NEEDS_ROOM
                return place

            at = batch.data + batch.size
            at += put_uvarint32(at, zigzag32(<int32_t>body))
            at[0] = 0                                           # attributes
            at += 1
            at += put_uvarint64(at, zigzag64(delta))
            at += put_uvarint32(at, zigzag32(batch.count))
            at = _put(at, &key)
            at = _put(at, &value)
            if rows.headers.offsets == NULL:
                at[0] = 0
            else:
                _put_headers(at, rows, begin, after)
            if batch.count == 0:
                batch.base_timestamp = batch.max_timestamp = timestamp
            elif timestamp > batch.max_timestamp:
                batch.max_timestamp = timestamp
            if whole > batch.largest:
                batch.largest = whole
            batch.size += whole
            batch.count += 1
            place += 1
        stop[0] = AT_END
        return place

    cdef str _explain(self, int stop, int64_t number):
        if stop == NO_PARTITION:
            return f"is for partition {number}, but the topic has {self.partitions}, counted from 0"
        if stop == NO_HEADER_KEY:
            return "has a header whose key is null; give every header a key"
        if stop == TOO_LARGE:
            return f"makes a record of {number} bytes, more than a batch can hold"
        return "is outside the memory of its column: the Arrow data is invalid"
