"""Walks over the entries in a piece of a log: where the last complete entry ends, whether a client knows all formats,
and which messages of a set get index entries.

There is no Python object per entry: a message set of format 0 or 1 may have a message every thirty bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkapy._ext.cursor cimport load32, load64


cdef enum:
    RELEASE_FROM = 65536        # bytes; a walk over messages of thirty bytes takes about ten microseconds
    MESSAGE_AT_TIMESTAMP = 18   # int64, in format 1
    LEAST_FORMAT_1 = 34         # size of the smallest message of format 1
    ENTRY_DELTA_END = 27        # end of the last offset delta (int32) of a batch of format 2
    ENTRY_AT_COUNT = 57         # the number of records (int32) of a batch of format 2
    LEAST_FORMAT_2 = 61         # size of the header of a batch of format 2
    MESSAGES_AT_ONCE = 4096     # messages between two releases of the GIL: about forty microseconds

cdef Stop walk(const uint8_t *data, int64_t size, int highest_magic) noexcept nogil:
    cdef Stop stop
    cdef int64_t left
    stop.position = stop.last = 0
    stop.size = 0
    stop.above = False
    while True:
        left = size - stop.position
        if left <= ENTRY_AT_MAGIC:
            stop.size = 0
            return stop
        stop.size = <int64_t><int>load32(data + stop.position + ENTRY_AT_LENGTH)
        if stop.size < ENTRY_LEAST:
            stop.size = -1
            return stop
        stop.size += ENTRY_OVERHEAD
        if stop.size > left:
            return stop
        if <signed char>data[stop.position + ENTRY_AT_MAGIC] > highest_magic:
            stop.above = True
            return stop
        stop.last = stop.position
        stop.position += stop.size


def whole_entries(buffer, int highest_magic=127) -> tuple[int, int, bool]:
    """Find the last complete entry of a known format in `buffer`, which begins with an entry: (position, size, above).

    position: the end of the last complete entry whose magic is at most `highest_magic`. size: the size of the entry at
    `position`; 0 if too few bytes are there to tell, -1 if its length is invalid. above: True if that entry is complete
    and of a newer format.
    """
    cdef Py_buffer held
    cdef Stop stop
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if held.len < RELEASE_FROM:
            stop = walk(<const uint8_t *>held.buf, held.len, highest_magic)
        else:
            with nogil:
                stop = walk(<const uint8_t *>held.buf, held.len, highest_magic)
    finally:
        PyBuffer_Release(&held)
    return stop.position, stop.size, stop.above


def entries_end(buffer) -> tuple[int, int, int]:
    """Find the last complete entry in `buffer`, which begins with an entry: (position, size, offset).

    position: the end of the last complete entry. offset: its last offset + 1; -1 if there is no complete entry. size:
    the size of the entry at `position`; 0 if too few bytes are there to tell, -1 if its length is invalid.
    """
    cdef Py_buffer held
    cdef Stop stop
    cdef int64_t offset = -1
    cdef const uint8_t *last
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            stop = walk(<const uint8_t *>held.buf, held.len, 127)
            if stop.position:
                last = <const uint8_t *>held.buf + stop.last
                offset = <int64_t>load64(last) + 1
                if last[ENTRY_AT_MAGIC] == 2 and stop.position - stop.last >= ENTRY_DELTA_END:
                    offset += <int64_t><int>load32(last + ENTRY_DELTA_END - 4)
    finally:
        PyBuffer_Release(&held)
    return stop.position, stop.size, offset


def entries_total(buffer) -> tuple[int, int, int]:
    """Count what a Fetch response has: (entries, records, offset).

    `buffer` begins with an entry; an incomplete one at its end does not count. records: as the headers of the batches
    say, without unpacking; a message of format 0 or 1, also a compressed wrapper, is one. offset: the last offset + 1;
    -1 without a complete entry.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t size, entries = 0, records = 0, offset = -1
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            at = <const uint8_t *>held.buf
            end = at + held.len
            while end - at > ENTRY_AT_MAGIC:
                size = ENTRY_OVERHEAD + <int64_t><int>load32(at + ENTRY_AT_LENGTH)
                if size < ENTRY_OVERHEAD + ENTRY_LEAST or size > end - at:
                    break
                entries += 1
                offset = <int64_t>load64(at) + 1
                if at[ENTRY_AT_MAGIC] == 2 and size >= LEAST_FORMAT_2:
                    offset += <int64_t><int>load32(at + ENTRY_DELTA_END - 4)
                    records += <int64_t><int>load32(at + ENTRY_AT_COUNT)
                else:
                    records += 1
                at += size
    finally:
        PyBuffer_Release(&held)
    return entries, records, offset


def index_steps(buffer, int64_t interval, int64_t since) -> list[tuple[int, int, int, int]]:
    """Cut a set of single messages (formats 0, 1) where the indexes get entries: [(size, count, stamp, before), ...].

    A message gets an index entry when more than `interval` bytes were appended since the last index entry; `since` is
    that number before this set. Such a message is a step of its own; the messages up to the next such message are
    another step. size: bytes of the step. count: its messages. stamp: its largest timestamp (-1: none). before: how
    many of its messages precede the first message with that timestamp.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t size, timestamp, step_size = 0, stamp = -1
    cdef int64_t count = 0, before = 0, seen = 0
    cdef bint entry
    cdef list steps = []
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>held.buf
        end = at + held.len
        while end - at > ENTRY_AT_MAGIC:
            size = ENTRY_OVERHEAD + <int64_t><int>load32(at + ENTRY_AT_LENGTH)
            if size < ENTRY_OVERHEAD + ENTRY_LEAST or size > end - at:
                raise ValueError(f"no message begins {end - at} bytes before the end of the set")
            timestamp = -1
            if at[ENTRY_AT_MAGIC] == 1 and size >= LEAST_FORMAT_1:
                timestamp = <int64_t>load64(at + MESSAGE_AT_TIMESTAMP)
            entry = since > interval
            if entry:
                if count:
                    steps.append((step_size, count, stamp, before))
                steps.append((size, 1, timestamp, 0))
                since = step_size = count = before = 0
                stamp = -1
            else:
                if timestamp > stamp:
                    stamp = timestamp
                    before = count
                step_size += size
                count += 1
            since += size
            at += size
            seen += 1
            if seen % MESSAGES_AT_ONCE == 0:
                with nogil:             # lets other threads run
                    pass
        if count:
            steps.append((step_size, count, stamp, before))
    finally:
        PyBuffer_Release(&held)
    return steps


def any_older(sets) -> bool:
    """Return True if one of the record sets (bytes-like) begins with a message of format 0 or 1."""
    cdef Py_buffer held
    cdef bint older
    for one in sets:
        PyObject_GetBuffer(one, &held, PyBUF_SIMPLE)
        older = held.len > ENTRY_AT_MAGIC and (<const signed char *>held.buf)[ENTRY_AT_MAGIC] < 2
        PyBuffer_Release(&held)
        if older:
            return True
    return False
