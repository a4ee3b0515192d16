"""Checks every byte of a segment as fast as checksums allow, for `kafkapy log verify`.

A Checker is fed the bytes of a file, a window at a time, and collects what is wrong. It checks each entry (a batch of
format 2, or a message or wrapper of format 0 or 1) by its length, magic, CRC, the order of offsets, and record by
record. Of a compressed entry it checks only the header and the CRC; the caller decompresses the entry and calls
`check_packed`. Index entries are compared during the same walk, so that nothing is read twice.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport UINT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH, AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, CODEC_BITS, CONTROL_BIT,
    HEADER_SIZE, LOOK_BAD_SIZE, LOOK_PARTIAL, LOOK_WHOLE, TRANSACTIONAL_BIT, Look, sequence_after,
)
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.entries cimport entry_crc_matches, look_entry
from kafkapy._ext.legacy cimport (
    FOUND_WHOLE, MSG_APPEND_TIME_BIT, MSG_CODEC_BITS, Found, MessageView, explain_message, message_crc_matches,
    read_message,
)
from kafkapy._ext.message_sets cimport SET_VALID, InnerSet, SetFault, begin_set, explain_set, measure_set, offset_in
from kafkapy._ext.records cimport STEP_DONE, RecordView, Step, explain, read_record

cdef enum:
    ZSTD = 4                    # the last known codec
    LZ4 = 3                     # the last codec of formats 0 and 1
    SLOTS = 1024                # producers whose consecutive batches are combined
    MOST_TROUBLES = 1000        # problems that are stored until `take_troubles`
    UP_TO_MAGIC = 17            # Kafka examines an entry only if this many bytes are there
    LEGACY_HEADER = 26          # size of the smallest message of format 0, and end of the timestamp in format 1
    FARTHEST = 0x7FFFFFFF       # the largest offset in a segment, relative to its base offset


# --- growing arrays

cdef uint8_t *_room(Pile *pile, size_t size) noexcept nogil:
    """Return the address of `size` more bytes, counted as used; NULL if there is no memory."""
    cdef size_t room
    cdef uint8_t *data
    if pile.size + size > pile.room:
        room = pile.room * 2 if pile.room else 4096
        data = <uint8_t *>realloc(pile.data, room)
        if data == NULL:
            return NULL
        pile.data = data
        pile.room = room
    pile.size += size
    return pile.data + pile.size - size


cdef bytes _taken(Pile *pile):
    taken = PyBytes_FromStringAndSize(<char *>pile.data, pile.size)
    pile.size = 0
    return taken


# --- the records of a batch

cdef bint _check_records(
    const uint8_t *at, const uint8_t *end, int32_t count, int32_t last_delta, int64_t base_timestamp,
    int64_t max_timestamp, bint append_time, Trouble *found
) noexcept nogil:
    """Check the decompressed records of a batch. Return False, with the problem in `found`, if one is invalid."""
    cdef RecordView record
    cdef Step step
    cdef int32_t i, previous = -1
    cdef int64_t timestamp, largest = -1, missing = 0
    for i in range(count):
        step = read_record(at, end, &record, &missing)
        if step != STEP_DONE:
            found.kind, found.first, found.second = WRONG_RECORD, i, step
            return False
        if record.offset_delta <= previous or record.offset_delta > last_delta:
            found.kind, found.first, found.second = WRONG_DELTA, i, record.offset_delta
            return False
        previous = record.offset_delta
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        if timestamp > largest:
            largest = timestamp
        at = record.end
    if at != end:
        found.kind, found.first = WRONG_REST, end - at
        return False
    if count and not append_time and largest != max_timestamp:
        found.kind, found.first, found.second = WRONG_TIMESTAMP, max_timestamp, largest
        return False
    return True


cdef bint _records_of(const uint8_t *at, const uint8_t *records, const uint8_t *end, Trouble *found) noexcept nogil:
    """Check the records of the batch at `at` against its header; see `_check_records`."""
    return _check_records(
        records, end, <int32_t>load32(at + AT_COUNT), <int32_t>load32(at + AT_LAST_OFFSET_DELTA),
        <int64_t>load64(at + AT_BASE_TIMESTAMP), <int64_t>load64(at + AT_MAX_TIMESTAMP),
        (load16(at + AT_ATTRIBUTES) & APPEND_TIME_BIT) != 0, found,
    )


# Return the end of the sentence "the entry has ..." for a problem.
cdef str _sentence(const Trouble *it):
    if it.kind == WRONG_LENGTH:
        return f"a length of {it.first} bytes, which is not valid for an entry: the rest of the file cannot be read"
    if it.kind == WRONG_MAGIC:
        return f"magic {it.first}, an unknown message format: the rest of the file cannot be read"
    if it.kind == WRONG_CRC:
        return "a wrong CRC"
    if it.kind == WRONG_ORDER:
        return f"offsets from {it.first} on, but {it.second} or more must follow"
    if it.kind == WRONG_SPAN:
        return f"the base offset {it.first}, but the last offset {it.second}"
    if it.kind == WRONG_RANGE:
        return f"the last offset {it.first}, too far from the segment's base offset {it.second}"
    if it.kind == WRONG_CODEC:
        return f"codec {it.first}, which its format does not have"
    if it.kind == WRONG_COUNT:
        return f"a count of {it.first} records for {it.second} offsets"
    if it.kind == WRONG_RECORD:
        return "records that cannot be read: " + explain(<Step>it.second, <int32_t>it.first, 1)
    if it.kind == WRONG_DELTA:
        return (f"records whose offsets are out of order or after its last offset: record {it.first} has the offset "
                f"delta {it.second}")
    if it.kind == WRONG_REST:
        return f"{it.first} bytes after its last record"
    if it.kind == WRONG_TIMESTAMP:
        return f"the max timestamp {it.first}, but the largest of its records is {it.second}"
    return "a key or a value that extends beyond its end"


# --- the walk

@cython.final
cdef class Checker:
    """The check of one segment: call `feed` until `stopped` or until the end of the file.

    `base_offset` is the smallest allowed offset. `expected` is the next offset after the previous segment, to detect a
    gap before this segment. `positions` and `offsets` are those of index entries, as native int64 numbers in ascending
    order; `at_positions` and `at_offsets` return what the segment has there.
    """

    cdef readonly int64_t base_offset
    cdef readonly int64_t first_offset      # of the first entry; -1: there is none
    cdef readonly int64_t next_offset       # after the last entry; the base offset if there is none
    cdef readonly int64_t batches           # complete entries, valid or not
    cdef readonly int64_t records           # in uncompressed entries
    cdef readonly int64_t max_timestamp     # -1: none
    cdef readonly int64_t gap               # base offset of the last entry that follows a gap; -1: none
    cdef readonly int64_t wanted            # bytes of the entry that did not fit into the window
    cdef readonly int64_t troubles          # number of problems, including those not stored
    cdef readonly bint stopped              # True if the rest of the file cannot be read

    cdef int64_t last_offset                # largest last offset so far; -1: none
    cdef int64_t least                      # the smallest offset allowed for the current entry
    cdef int64_t expected                   # an entry with another base offset follows a gap; -1: unknown
    cdef int64_t remembered                 # number of stored problems
    cdef size_t next_position               # index of the next unanswered AtPosition
    cdef size_t next_query                  # index of the next unanswered AtOffset
    cdef Pile wrong, packed, produced, runs, by_position, by_offset
    cdef int64_t slots[SLOTS]               # index in `produced` of a producer's last plain batches; -1: none

    def __cinit__(self, int64_t base_offset, bytes positions=b"", bytes offsets=b"", int64_t expected=-1):
        self.base_offset = self.next_offset = self.least = base_offset
        self.expected = expected if expected >= 0 else base_offset
        self.first_offset = self.last_offset = self.max_timestamp = self.gap = -1
        self._forget_producers()
        self._ask(&self.by_position, positions, sizeof(AtPosition))
        self._ask(&self.by_offset, offsets, sizeof(AtOffset))

    def __dealloc__(self):
        free(self.wrong.data)
        free(self.packed.data)
        free(self.produced.data)
        free(self.runs.data)
        free(self.by_position.data)
        free(self.by_offset.data)

    cdef int _ask(self, Pile *pile, bytes numbers, size_t size) except -1:
        cdef const uint8_t *data = numbers
        cdef size_t i
        cdef uint8_t *slot
        for i in range(<size_t>len(numbers) // 8):
            slot = _room(pile, size)
            if slot == NULL:
                raise MemoryError
            memset(slot, 0xFF, size)        # sets every field to -1: nothing found
            memcpy(slot, data + 8 * i, 8)
        return 0

    cdef void _forget_producers(self) noexcept nogil:
        memset(self.slots, 0xFF, sizeof(self.slots))

    def feed(self, window, int64_t position) -> int:
        """Check the complete entries in `window`, which begins at `position` in the file.

        Return the end of the last complete entry: the next window has to begin there. Raises MemoryError.
        """
        cdef Py_buffer held
        cdef int64_t taken
        PyObject_GetBuffer(window, &held, PyBUF_SIMPLE)
        try:
            with nogil:
                taken = self._walk(<const uint8_t *>held.buf, held.len, position)
        finally:
            PyBuffer_Release(&held)
        if taken < 0:
            raise MemoryError
        return position + taken

    cdef int64_t _walk(self, const uint8_t *data, int64_t length, int64_t position) noexcept nogil:
        cdef int64_t here = 0, size = 0
        cdef Look seen
        self.wanted = 0
        while not self.stopped and self.remembered < MOST_TROUBLES:
            if length - here < UP_TO_MAGIC:
                self.wanted = UP_TO_MAGIC
                break
            size = 0
            seen = look_entry(data + here, length - here, &size)
            if seen == LOOK_PARTIAL:
                self.wanted = size
                break
            if seen != LOOK_WHOLE:
                self.stopped = True
                if seen == LOOK_BAD_SIZE:
                    self._wrong(WRONG_LENGTH, position + here, -1, <int32_t>load32(data + here + AT_LENGTH), 0)
                else:
                    self._wrong(WRONG_MAGIC, position + here, -1, <signed char>data[here + AT_MAGIC], 0)
                break
            if not self._entry(data + here, size, position + here):
                return -1
            here += size
        return here

    cdef void _wrong(self, Kind kind, int64_t position, int64_t offset, int64_t first, int64_t second) noexcept nogil:
        cdef Trouble *it = <Trouble *>_room(&self.wrong, sizeof(Trouble))
        self.troubles += 1
        if it != NULL:
            self.remembered += 1
            it.kind = kind
            it.position = position
            it.offset = offset
            it.first = first
            it.second = second

    cdef bint _entry(self, const uint8_t *at, int64_t size, int64_t position) noexcept nogil:
        """Check a complete entry; return False if there is no memory."""
        cdef bint v2 = at[AT_MAGIC] == 2
        cdef int64_t base = <int64_t>load64(at)
        cdef int64_t last = base + <int32_t>load32(at + AT_LAST_OFFSET_DELTA) if v2 else base
        cdef int64_t timestamp = -1
        cdef bint right = entry_crc_matches(at, size)
        self.batches += 1
        if v2:
            timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
        elif at[AT_MAGIC] == 1:
            timestamp = <int64_t>load64(at + 18)
        if not right:
            self._wrong(WRONG_CRC, position, base, 0, 0)
            self.expected = -1
            # Any of its fields may be wrong: use them only if they are plausible.
            if base < self.next_offset or last < base or last - self.base_offset > FARTHEST:
                return True
        elif last < base:
            self._wrong(WRONG_SPAN, position, base, base, last)
            return True
        elif base < self.next_offset:
            self._wrong(WRONG_ORDER, position, base, base, self.next_offset)
            return True
        elif last - self.base_offset > FARTHEST:
            self._wrong(WRONG_RANGE, position, base, last, self.base_offset)
            return True
        self._answer(position, base, last, timestamp, at[AT_MAGIC])
        if self.first_offset < 0:
            self.first_offset = base
        if v2 and base != self.expected:
            self.gap = base
        self.last_offset = last
        self.least = self.next_offset
        self.next_offset = last + 1
        if not right:
            return True
        self.expected = last + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return self._batch(at, size, position, base, last) if v2 else self._message(at, size, position, base)

    cdef bint _message(self, const uint8_t *at, int64_t size, int64_t position, int64_t offset) noexcept nogil:
        cdef MessageView view
        cdef int64_t missing = 0
        cdef Found found = read_message(at, at + size, &view, &missing)
        if found != FOUND_WHOLE:
            self._wrong(WRONG_MESSAGE, position, offset, found, missing)
            return True
        if not view.attributes & MSG_CODEC_BITS:
            self.records += 1
            return True
        if (view.attributes & MSG_CODEC_BITS) > LZ4:
            self._wrong(WRONG_CODEC, position, offset, view.attributes & MSG_CODEC_BITS, 0)
            return True
        return self._pack(position, size)

    cdef bint _pack(self, int64_t position, int64_t size) noexcept nogil:
        cdef Packed *it = <Packed *>_room(&self.packed, sizeof(Packed))
        if it == NULL:
            return False
        it.position = position
        it.size = size
        it.least = self.least
        return True

    cdef bint _batch(
        self, const uint8_t *at, int64_t size, int64_t position, int64_t base, int64_t last
    ) noexcept nogil:
        cdef int16_t attributes = <int16_t>load16(at + AT_ATTRIBUTES)
        cdef int32_t count = <int32_t>load32(at + AT_COUNT)
        cdef Trouble found
        if count < 0 or count > last - base + 1:
            self._wrong(WRONG_COUNT, position, base, count, last - base + 1)
        elif (attributes & CODEC_BITS) > ZSTD:
            self._wrong(WRONG_CODEC, position, base, attributes & CODEC_BITS, 0)
        elif attributes & CODEC_BITS and count:
            if not self._pack(position, size):
                return False
        elif not _records_of(at, at + HEADER_SIZE, at + size, &found):
            self._wrong(found.kind, position, base, found.first, found.second)
        else:
            self.records += count
        if not self._note_epoch(<int32_t>load32(at + AT_LEADER_EPOCH), base, last):
            return False
        if <int64_t>load64(at + AT_PRODUCER_ID) < 0:
            return True
        return self._note_producer(at, size, position, base, last, attributes)

    cdef bint _note_epoch(self, int64_t epoch, int64_t base, int64_t last) noexcept nogil:
        cdef Run *run
        if self.runs.size:
            run = <Run *>(self.runs.data + self.runs.size) - 1
            if run.epoch == epoch:
                run.last_offset = last
                return True
        run = <Run *>_room(&self.runs, sizeof(Run))
        if run == NULL:
            return False
        run.epoch = epoch
        run.first_offset = base
        run.last_offset = last
        return True

    cdef bint _note_producer(self, const uint8_t *at, int64_t size, int64_t position, int64_t base, int64_t last,
                             int16_t attributes) noexcept nogil:
        cdef int64_t producer_id = <int64_t>load64(at + AT_PRODUCER_ID)
        cdef int16_t epoch = <int16_t>load16(at + AT_PRODUCER_EPOCH)
        cdef int32_t sequence = <int32_t>load32(at + AT_BASE_SEQUENCE)
        cdef bint plain = not attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
        cdef int64_t *slot = &self.slots[<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15 >> 54]
        cdef Produced *it = NULL
        if slot[0] >= 0:
            it = <Produced *>self.produced.data + slot[0]
            if not (
                plain and it.producer_id == producer_id and it.producer_epoch == epoch
                and sequence >= 0 and sequence == sequence_after(it.last_sequence, 1)
            ):
                it = NULL
        if it == NULL:
            slot[0] = <int64_t>(self.produced.size // sizeof(Produced)) if plain else -1
            it = <Produced *>_room(&self.produced, sizeof(Produced))
            if it == NULL:
                return False
            it.producer_id = producer_id
            it.producer_epoch = epoch
            it.attributes = attributes
            it.first_offset = base
            it.first_sequence = sequence
            it.gap = self.gap
        it.base_offset = base
        it.last_offset = last
        it.base_sequence = sequence
        it.last_sequence = sequence_after(sequence, <int32_t>(last - base))
        it.max_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
        it.position = position
        it.size = <int32_t>size
        return True

    # --- answers for index entries

    cdef void _answer(self, int64_t position, int64_t base, int64_t last, int64_t timestamp, int magic) noexcept nogil:
        cdef AtPosition *place
        cdef AtOffset *query
        while self.next_position < self.by_position.size // sizeof(AtPosition):
            place = <AtPosition *>self.by_position.data + self.next_position
            if place.position > position:
                break
            if place.position == position:
                place.before = self.last_offset
                place.base_offset = base
                place.last_offset = last
                place.found = 1
            self.next_position += 1
        while self.next_query < self.by_offset.size // sizeof(AtOffset):
            query = <AtOffset *>self.by_offset.data + self.next_query
            if query.offset > last:
                break
            query.max_before = self.max_timestamp
            query.base_offset = base
            query.last_offset = last
            query.max_timestamp = timestamp
            query.magic = magic
            self.next_query += 1

    # --- results

    def take_troubles(self) -> list[tuple[int, int, str]]:
        """Return the stored problems: (position, offset or -1, the end of the sentence "the entry has ...")."""
        cdef Trouble *it = <Trouble *>self.wrong.data
        cdef size_t i
        found = [(it[i].position, it[i].offset, _sentence(&it[i])) for i in range(self.wrong.size // sizeof(Trouble))]
        self.wrong.size = 0
        self.remembered = 0
        return found

    def take_packed(self) -> bytes:
        """Return the compressed entries since the last call: struct "=qqq" each, see Packed."""
        return _taken(&self.packed)

    def take_produced(self) -> bytes:
        """Return what producers with an id wrote since the last call: see Produced."""
        self._forget_producers()
        return _taken(&self.produced)

    def take_epochs(self) -> bytes:
        """Return struct "=qqq" for each run of batches of one leader epoch: epoch, first and last offset."""
        return _taken(&self.runs)

    def at_positions(self) -> bytes:
        """Return struct "=qqqqq" for each of `positions`: see AtPosition."""
        return _taken(&self.by_position)

    def at_offsets(self) -> bytes:
        """Return struct "=qqqqqq" for each of `offsets`: see AtOffset."""
        return _taken(&self.by_offset)


def check_packed(entry, payload, int64_t least=0) -> tuple[int, str | None]:
    """Check the decompressed `payload` of a compressed entry; `entry` begins with the entry's header.

    `least`: the smallest offset that the first message may have; a wrapper does not store it. Return the number of
    records, and the end of the sentence "the entry has ..." or None if nothing is wrong.
    """
    cdef Py_buffer head, held
    cdef Trouble found
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef bint right
    PyObject_GetBuffer(entry, &head, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>head.buf
        if head.len < LEGACY_HEADER or (at[AT_MAGIC] == 2 and head.len < HEADER_SIZE):
            raise ValueError(f"{head.len} bytes, too few for the header of an entry")
        PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
        try:
            end = <const uint8_t *>held.buf + held.len
            if at[AT_MAGIC] != 2:
                return _check_set(at, <const uint8_t *>held.buf, end, least)
            with nogil:
                right = _records_of(at, <const uint8_t *>held.buf, end, &found)
            return <int32_t>load32(at + AT_COUNT), None if right else _sentence(&found)
        finally:
            PyBuffer_Release(&held)
    finally:
        PyBuffer_Release(&head)


cdef tuple _check_set(const uint8_t *wrapper, const uint8_t *at, const uint8_t *end, int64_t least):
    """Check the messages in a wrapper: their structure, CRCs and offsets, and the wrapper's offset and timestamp."""
    cdef InnerSet inner
    cdef MessageView view
    cdef SetFault fault
    cdef int64_t missing = 0, previous = -1, largest = -1
    cdef int magic = wrapper[AT_MAGIC]
    cdef int64_t offset = <int64_t>load64(wrapper), timestamp = <int64_t>load64(wrapper + 18) if magic else -1
    cdef int number = 0
    begin_set(&inner, <signed char>magic, <signed char>wrapper[17], offset, timestamp)
    with nogil:
        fault = measure_set(&inner, at, end)
    if fault != SET_VALID:
        return inner.count, f"a set that cannot be read: {explain_set(fault, &inner)}"
    while read_message(at, end, &view, &missing) == FOUND_WHOLE:
        if not message_crc_matches(at, view.size):
            return inner.count, f"a wrong CRC in its message {number}"
        if view.magic != magic:
            return inner.count, f"a message of format {view.magic} (message {number})"
        if number == 0 and offset_in(&inner, &view) < least:
            return inner.count, f"messages from offset {offset_in(&inner, &view)} on, but {least} or more must follow"
        if offset_in(&inner, &view) <= previous:
            return inner.count, f"messages whose offsets are out of order (message {number})"
        previous = offset_in(&inner, &view)
        if view.timestamp > largest:
            largest = view.timestamp
        at = view.end
        number += 1
    if at != end:
        return inner.count, f"{end - at} bytes after its last message"
    if previous != offset:
        return inner.count, f"the offset {offset}, but its last message has {previous}"
    if magic and not inner.append_time and largest != timestamp:
        return inner.count, f"the timestamp {timestamp}, but the largest of its messages is {largest}"
    return inner.count, None
