"""Where the whole entries of a piece of a log end, whether all are of a format that a client knows, and which of the
messages of a set get entries in the indexes.

No Python object is made per entry: a message set of format 0 or 1 may have a message every thirty bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkapy._ext.cursor cimport load32, load64


cdef enum:
    RELEASE_FROM = 65536        # bytes: in steps of thirty bytes it takes about ten microseconds
    MESSAGE_AT_TIMESTAMP = 18   # int64, of format 1; format 0 has none
    LEAST_FORMAT_1 = 34         # the smallest message that has one
    ENTRY_DELTA_END = 27        # where the last offset delta of a batch of format 2 ends, an int32
    MESSAGES_AT_ONCE = 4096     # walked over in some forty microseconds; then others may have the interpreter's lock

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
    """Walk from the buffer's beginning: (position, size, above).

    position: behind the last of the entries that are whole and of a format up to `highest_magic`. size: of the entry
    there, 0 if too little of it is there to tell, -1 if its length is not that of one. above: whether it is whole,
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
    """Walk from the buffer's beginning: (position, size, offset).

    position: behind the last whole entry; offset: the one behind its last record, -1 if there is no whole entry.
    size: of the entry at `position`, 0 if too little of it is there to tell, -1 if its length is not that of one.
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


def index_steps(buffer, int64_t interval, int64_t since) -> list[tuple[int, int, int, int]]:
    """Cut a set of single messages (formats 0, 1) where the indexes get entries: [(size, count, stamp, before), ...].

    A message gets one when more than `interval` bytes were appended since the last, `since` before this set; it is a
    step of its own, and those up to the next are another. size: bytes, count: messages, stamp: the largest timestamp
    (-1 for none), before: how many messages of the step precede the first that has it.
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
                raise ValueError(f"there is no message {end - at} bytes before the end of the set")
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
                with nogil:
                    pass
        if count:
            steps.append((step_size, count, stamp, before))
    finally:
        PyBuffer_Release(&held)
    return steps


def any_older(sets) -> bool:
    """Whether one of the record sets (bytes-like) begins with a message of format 0 or 1."""
    cdef Py_buffer held
    cdef bint older
    for one in sets:
        PyObject_GetBuffer(one, &held, PyBUF_SIMPLE)
        older = held.len > ENTRY_AT_MAGIC and (<const signed char *>held.buf)[ENTRY_AT_MAGIC] < 2
        PyBuffer_Release(&held)
        if older:
            return True
    return False
