"""Check message sets of Kafka 0.7, without Python objects for messages.

`check` is for a set that is to be stored or that was decompressed, `scan` for bytes of a segment file. The input is
untrusted memory. Source: Kafka 0.7.2's ByteBufferMessageSet.internalIterator and FileMessageSet.validateMessage.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkapy._ext.crc32 cimport crc_of
from kafkapy._ext.cursor cimport load32

cdef enum:
    LENGTH = 4                  # size of the length field
    HEADER_0 = 5                # magic, CRC
    HEADER_1 = 6                # magic, attributes, CRC
    CODEC_BITS = 3
    LONG_CHECK = 1 << 20        # bytes from which a check takes longer than a switch of threads


class InvalidSet(ValueError):
    """The error for a set with an invalid message. `position` is where the message begins in the set."""

    def __init__(self, position, reason):
        super().__init__(reason)
        self.position = position


class MessageTooLarge(ValueError):
    """The error for a set with a valid message whose payload is larger than allowed."""


cdef Fault07 look_at(const uint8_t *at, const uint8_t *end, Message07 *found) noexcept nogil:
    cdef const uint8_t *start = at + LENGTH
    cdef int header
    if end - at < LENGTH:
        return MESSAGE_CUT
    found.length = <int32_t>load32(at)
    if found.length < HEADER_0:
        return MESSAGE_SHORT
    if found.length > end - start:
        return MESSAGE_CUT
    if start[0] > 1:
        return MESSAGE_MAGIC
    header = HEADER_0 + start[0]
    if found.length < header:
        return MESSAGE_SHORT
    found.magic = start[0]
    found.codec = start[1] & CODEC_BITS if start[0] else 0
    found.payload = found.length - header
    if crc_of(0, start + header, found.payload) != load32(start + header - 4):
        return MESSAGE_CRC
    return MESSAGE_VALID


cdef str _explain(Fault07 fault, const uint8_t *at, const Message07 *found):
    if fault == MESSAGE_SHORT:
        return f"a length of {found.length} bytes, too few for a message"
    if fault == MESSAGE_MAGIC:
        return f"magic {at[LENGTH]}, where Kafka 0.7 has 0 and 1"
    if fault == MESSAGE_CRC:
        return "a CRC that is not that of the payload"
    return f"a length of {found.length} bytes, more than there are"


def check(data, Py_ssize_t largest):
    """Return (size, messages, compressed) of a message set: the size of its whole messages in bytes, their number, and
    the positions of the compressed ones among them, whose contents are not checked.

    A message that the end cuts off is left out, unless it is the only one. Raises InvalidSet, and MessageTooLarge for a
    payload of more than `largest` bytes; of several faults the first counts.
    """
    cdef Py_buffer held
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Message07 found
    cdef Fault07 fault
    cdef Py_ssize_t count = 0
    cdef list compressed = []
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        start = at = <const uint8_t *>held.buf
        end = start + held.len
        while end - at >= LENGTH:
            if end - at > LONG_CHECK:
                with nogil:
                    fault = look_at(at, end, &found)
            else:
                fault = look_at(at, end, &found)
            if fault == MESSAGE_CUT and count:
                break
            if fault != MESSAGE_VALID:
                raise InvalidSet(at - start, _explain(fault, at, &found))
            if found.payload > largest:
                raise MessageTooLarge(f"a message has a payload of {found.payload} bytes, {largest} are allowed")
            if found.codec:
                compressed.append(at - start)
            count += 1
            at += LENGTH + found.length
        return at - start, count, compressed
    finally:
        PyBuffer_Release(&held)


def scan(data):
    """Return (end, messages, needed, fault) for bytes of a segment file that begin with a message.

    end: where the last whole and valid message ends. messages: the number of messages before. needed: the size in bytes
    of the incomplete message at `end`, at least 4; 0 if none begins there. fault: a text that says what is invalid at
    `end`, None if nothing is.
    """
    cdef Py_buffer held
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Message07 found
    cdef Fault07 fault
    cdef Py_ssize_t count = 0
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        start = at = <const uint8_t *>held.buf
        end = start + held.len
        with nogil:
            while True:
                fault = look_at(at, end, &found)
                if fault != MESSAGE_VALID:
                    break
                count += 1
                at += LENGTH + found.length
        if fault == MESSAGE_CUT:
            needed = 0 if at == end else LENGTH if end - at < LENGTH else LENGTH + <Py_ssize_t>found.length
            return at - start, count, needed, None
        return at - start, count, 0, _explain(fault, at, &found)
    finally:
        PyBuffer_Release(&held)
