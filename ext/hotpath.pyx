"""Produce requests decoded, Produce and Fetch responses encoded, without a message object in between.

The codec does the same for every API; this module does it in a call for the two that carry the records, and tests
compare it byte for byte with the codec. Versions: Produce 3 to 11, Fetch 4 to 17 (those that carry record batches).
A request that breaks the protocol raises ProtocolError, exactly where the codec does.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t

from kafkapy._ext.cursor cimport Reader, Writer, store32

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.varint import BadVarint
from kafkapy.errors import ProtocolError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    PRODUCE = 0
    FETCH = 1
    PRODUCE_FIRST = 3
    PRODUCE_LAST = 11
    PRODUCE_FLEXIBLE = 9
    FETCH_FIRST = 4
    FETCH_LAST = 17
    FETCH_FLEXIBLE = 12
    MAX_STRING = 0x7FFF
    MAX_FRAME = 0x7FFFFFFF
    KNOWN_NAMES = 4096          # topic names and client ids kept as str
    LONGEST_KNOWN = 255         # bytes; a topic's name has at most 249
    INLINE_BYTES = 4096         # records in memory up to this size are copied into the response around them

cdef bytes ZERO_UUID = bytes(16)

# The same few names come with every request. One str object each saves decoding, and the str keeps its hash.
cdef dict names = {}


# Requests


@cython.final
@cython.freelist(64)
cdef class ProduceRequest:
    """A Produce request. `topics` is a list of (name, [(partition, records), ...]).

    Records are memoryviews of the frame (writable when that is), or None for null.
    """


@cython.final
@cython.freelist(64)
cdef class FetchRequest:
    """A Fetch request. `topics` is a list of (name, topic_id, partitions), `forgotten` of (name, topic_id, numbers).

    A partition is (partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset,
    partition_max_bytes). The name is "" from v13 on, the topic id 16 zero bytes before.
    """


def decode_produce_frame(frame) -> ProduceRequest | None:
    """Read header and request of a frame (without its size); None if it is not a Produce request of v3 to v11."""
    cdef Reader reader = Reader(frame)
    cdef int version = version_of(reader, PRODUCE, PRODUCE_FIRST, PRODUCE_LAST)
    cdef ProduceRequest request
    if version < 0:
        return None
    request = ProduceRequest.__new__(ProduceRequest)
    request.api_version = version
    try:
        request.correlation_id = reader.get_int32()
        request.client_id = read_client_id(reader, version >= PRODUCE_FLEXIBLE)
        read_produce(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("Produce", version, reason) from None
    return request


def decode_produce(buffer, int version, Py_ssize_t offset=0) -> ProduceRequest:
    """Read the request that begins at `offset`, after the header (of which the result knows nothing)."""
    cdef Reader reader = Reader(buffer, offset)
    cdef ProduceRequest request = ProduceRequest.__new__(ProduceRequest)
    if not PRODUCE_FIRST <= version <= PRODUCE_LAST:
        raise ValueError(f"decode_produce reads the versions 3 to 11, not {version}")
    request.api_version = version
    request.client_id = ""
    try:
        read_produce(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("Produce", version, reason) from None
    return request


def decode_fetch_frame(frame) -> FetchRequest | None:
    """Read header and request of a frame (without its size); None if it is not a Fetch request of v4 to v17."""
    cdef Reader reader = Reader(frame)
    cdef int version = version_of(reader, FETCH, FETCH_FIRST, FETCH_LAST)
    cdef FetchRequest request
    if version < 0:
        return None
    request = FetchRequest.__new__(FetchRequest)
    request.api_version = version
    try:
        request.correlation_id = reader.get_int32()
        request.client_id = read_client_id(reader, version >= FETCH_FLEXIBLE)
        read_fetch(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("Fetch", version, reason) from None
    return request


class Broken(ValueError):
    """What ShortBuffer and BadVarint do not say; it does not leave this module."""


cdef object broken(str api, int version, object reason):
    return ProtocolError(f"{api} request v{version}: {reason}")


# The version of a frame that is a request of `api` in these versions, else -1; then nothing was read.
cdef int version_of(Reader reader, int api, int first, int last) except -2:
    cdef int version
    if reader.left() < 8 or reader.get_int16() != api:
        return -1
    version = reader.get_int16()
    return version if first <= version <= last else -1


cdef str read_client_id(Reader reader, bint flexible):
    cdef Py_ssize_t length = reader.get_int16()
    cdef str client_id = "" if length <= 0 else name_of(reader.take(length), length)
    if flexible:
        skip_tagged(reader)
    return client_id


cdef int read_produce(Reader reader, ProduceRequest request) except -1:
    cdef bint flexible = request.api_version >= PRODUCE_FLEXIBLE
    cdef Py_ssize_t topics, partitions, length
    cdef list parts
    cdef int32_t index
    request.transactional_id = read_string(reader, flexible, True)
    request.acks = reader.get_int16()
    request.timeout_ms = reader.get_int32()
    request.topics = []
    topics = read_count(reader, flexible)
    while topics > 0:
        topics -= 1
        name = read_string(reader, flexible, False)
        parts = []
        partitions = read_count(reader, flexible)
        while partitions > 0:
            partitions -= 1
            index = reader.get_int32()
            length = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int32()
            parts.append((index, None if length < 0 else reader.get_view(length)))
            if flexible:
                skip_tagged(reader)
        if flexible:
            skip_tagged(reader)
        request.topics.append((name, parts))
    if flexible:
        skip_tagged(reader)
    return 0


cdef int read_fetch(Reader reader, FetchRequest request) except -1:
    cdef int version = request.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef Py_ssize_t topics, partitions
    cdef list parts
    request.cluster_id = None
    request.replica_id = reader.get_int32() if version <= 14 else -1
    request.replica_epoch = -1
    request.max_wait_ms = reader.get_int32()
    request.min_bytes = reader.get_int32()
    request.max_bytes = reader.get_int32()
    request.isolation_level = reader.get_int8()
    request.session_id = reader.get_int32() if version >= 7 else 0
    request.session_epoch = reader.get_int32() if version >= 7 else -1
    request.topics = []
    topics = read_count(reader, flexible)
    while topics > 0:
        topics -= 1
        name = "" if version >= 13 else read_string(reader, flexible, False)
        topic_id = reader.get_bytes(16) if version >= 13 else ZERO_UUID
        parts = []
        partitions = read_count(reader, flexible)
        while partitions > 0:
            partitions -= 1
            parts.append(read_fetch_partition(reader, version))
        if flexible:
            skip_tagged(reader)
        request.topics.append((name, topic_id, parts))
    request.forgotten = read_forgotten(reader, version) if version >= 7 else []
    request.rack_id = read_string(reader, flexible, False) if version >= 11 else ""
    if flexible:
        read_fetch_tagged(reader, request)
    return 0


cdef tuple read_fetch_partition(Reader reader, int version):
    cdef int32_t partition = reader.get_int32()
    cdef int32_t leader_epoch = reader.get_int32() if version >= 9 else -1
    cdef int64_t fetch_offset = reader.get_int64()
    cdef int32_t fetched_epoch = reader.get_int32() if version >= 12 else -1
    cdef int64_t log_start_offset = reader.get_int64() if version >= 5 else -1
    cdef int32_t max_bytes = reader.get_int32()
    cdef Py_ssize_t fields, size
    cdef uint32_t tag
    if version >= FETCH_FLEXIBLE:
        fields = reader.get_uvarint()
        while fields > 0:
            fields -= 1
            tag = reader.get_uvarint()
            size = reader.get_uvarint()
            reader.advance(size)
            if tag == 0 and version >= 17 and size != 16:  # replica_directory_id: of KRaft followers, not used
                raise Broken(f"a uuid of {size} bytes")
    return (partition, leader_epoch, fetch_offset, fetched_epoch, log_start_offset, max_bytes)


cdef list read_forgotten(Reader reader, int version):
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef list forgotten = []
    cdef list numbers
    cdef Py_ssize_t partitions
    cdef Py_ssize_t topics = read_count(reader, flexible)
    while topics > 0:
        topics -= 1
        name = "" if version >= 13 else read_string(reader, flexible, False)
        topic_id = reader.get_bytes(16) if version >= 13 else ZERO_UUID
        numbers = []
        partitions = read_count(reader, flexible)
        while partitions > 0:
            partitions -= 1
            numbers.append(reader.get_int32())
        if flexible:
            skip_tagged(reader)
        forgotten.append((name, topic_id, numbers))
    return forgotten


cdef int read_fetch_tagged(Reader reader, FetchRequest request) except -1:
    cdef Py_ssize_t fields = reader.get_uvarint()
    cdef Py_ssize_t size, end
    cdef uint32_t tag
    while fields > 0:
        fields -= 1
        tag = reader.get_uvarint()
        size = reader.get_uvarint()
        reader.need(size)
        end = reader.tell() + size
        if tag == 0:
            request.cluster_id = read_string(reader, True, True)
        elif tag == 1 and request.api_version >= 15:
            request.replica_id = reader.get_int32()
            request.replica_epoch = reader.get_int64()
            skip_tagged(reader)
        else:
            reader.advance(size)
        if reader.tell() != end:
            raise Broken(f"tagged field {tag} ends at byte {reader.tell()}, by its size at byte {end}")
    return 0


cdef int skip_tagged(Reader reader) except -1:
    cdef Py_ssize_t fields = reader.get_uvarint()
    while fields > 0:
        fields -= 1
        reader.get_uvarint()
        reader.advance(reader.get_uvarint())
    return 0


# How many elements an array has: never more than there are bytes left, as every element takes one at least.
cdef Py_ssize_t read_count(Reader reader, bint flexible) except -1:
    cdef Py_ssize_t count = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int32()
    if count < 0:
        raise Broken(f"a null array before byte {reader.tell()}")
    if count > reader.left():
        raise Broken(f"{count} elements claimed at byte {reader.tell()} with {reader.left()} bytes left")
    return count


cdef object read_string(Reader reader, bint flexible, bint nullable):
    cdef Py_ssize_t length = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int16()
    if length < 0:
        if nullable:
            return None
        raise Broken(f"a null string before byte {reader.tell()}")
    if length > MAX_STRING:
        raise Broken(f"a string of {length} bytes before byte {reader.tell()}")
    return name_of(reader.take(length), length)


cdef str name_of(const uint8_t *at, Py_ssize_t length):
    cdef bytes key
    cdef str name
    if length > LONGEST_KNOWN:
        return PyUnicode_DecodeUTF8(<const char *>at, length, "replace")
    key = (<const char *>at)[:length]
    name = <str>names.get(key)
    if name is None:
        name = PyUnicode_DecodeUTF8(<const char *>at, length, "replace")
        if len(names) >= KNOWN_NAMES:  # somebody makes names up: begin again rather than grow
            names.clear()
        names[key] = name
    return name


# Responses


def encode_produce_response(int version, int32_t correlation_id, topics, int32_t throttle_ms=0) -> bytes:
    """Write the whole frame that answers a Produce request.

    `topics`: [(name, [(partition, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors,
    error_message), ...]), ...]; record_errors is None or [(batch_index, message or None), ...]; error_message may be
    None. Leaders and endpoints (v10+) are left out: an answer with them goes through the codec.
    """
    cdef bint flexible = version >= PRODUCE_FLEXIBLE
    cdef Writer writer
    cdef list parts
    cdef str name
    if not PRODUCE_FIRST <= version <= PRODUCE_LAST:
        raise ValueError(f"encode_produce_response writes the versions 3 to 11, not {version}")
    writer = Writer(128)
    writer.put_int32(0)
    writer.put_int32(correlation_id)
    if flexible:
        writer.put_int8(0)
    write_count(writer, len(topics), flexible)
    for name, parts in topics:
        write_string(writer, name, flexible)
        write_count(writer, len(parts), flexible)
        for index, error_code, base_offset, append_time, log_start_offset, record_errors, error_message in parts:
            writer.put_int32(index)
            writer.put_int16(error_code)
            writer.put_int64(base_offset)
            writer.put_int64(append_time)
            if version >= 5:
                writer.put_int64(log_start_offset)
            if version >= 8:
                write_record_errors(writer, record_errors, flexible)
                write_string(writer, error_message, flexible)
            if flexible:
                writer.put_int8(0)
        if flexible:
            writer.put_int8(0)
    writer.put_int32(throttle_ms)
    if flexible:
        writer.put_int8(0)
    store32(writer.data, writer.size - 4)
    return PyBytes_FromStringAndSize(<char *>writer.data, writer.size)


cdef int write_record_errors(Writer writer, object record_errors, bint flexible) except -1:
    if record_errors is None:
        return write_count(writer, 0, flexible)
    write_count(writer, len(record_errors), flexible)
    for index, message in record_errors:
        writer.put_int32(index)
        write_string(writer, message, flexible)
        if flexible:
            writer.put_int8(0)
    return 0


def encode_fetch_response(
    int version, int32_t correlation_id, int32_t throttle_ms, int16_t error_code, int32_t session_id, topics
) -> list:
    """Write the whole frame that answers a Fetch request, as a list of parts to be sent one after the other.

    `topics`: [(name, topic_id, [(partition, error_code, high_watermark, last_stable_offset, log_start_offset,
    aborted, preferred_read_replica, records), ...]), ...]; aborted is None (null) or [(producer_id, first_offset),
    ...]; records is None (null), bytes-like, or anything with a `length` in bytes (a FileRegion): that becomes a
    part of its own, as do large bytes. Diverging epochs, leaders and endpoints (tagged, v12+) are left out: an
    answer with them goes through the codec.
    """
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef Writer writer
    cdef FrameParts frame
    cdef list parts
    if not FETCH_FIRST <= version <= FETCH_LAST:
        raise ValueError(f"encode_fetch_response writes the versions 4 to 17, not {version}")
    frame = FrameParts.__new__(FrameParts)
    frame.writer = writer = Writer(256)
    frame.parts = []
    writer.put_int32(0)
    writer.put_int32(correlation_id)
    if flexible:
        writer.put_int8(0)
    writer.put_int32(throttle_ms)
    if version >= 7:
        writer.put_int16(error_code)
        writer.put_int32(session_id)
    write_count(writer, len(topics), flexible)
    for name, topic_id, parts in topics:
        if version >= 13:
            write_uuid(writer, topic_id)
        else:
            write_string(writer, name, flexible)
        write_count(writer, len(parts), flexible)
        for index, code, high_watermark, stable_offset, log_start_offset, aborted, replica, records in parts:
            writer.put_int32(index)
            writer.put_int16(code)
            writer.put_int64(high_watermark)
            writer.put_int64(stable_offset)
            if version >= 5:
                writer.put_int64(log_start_offset)
            write_aborted(writer, aborted, flexible)
            if version >= 11:
                writer.put_int32(replica)
            frame.write_records(records, flexible)
            if flexible:
                writer.put_int8(0)
        if flexible:
            writer.put_int8(0)
    if flexible:
        writer.put_int8(0)
    return frame.finish()


@cython.final
cdef class FrameParts:
    cdef Writer writer          # all bytes written here, of all parts
    cdef Py_ssize_t begun       # where in the writer the bytes begin that are in no part yet
    cdef Py_ssize_t beside      # bytes in the parts that are not in the writer
    cdef list parts             # what is to be sent; holes (None) for bytes of the writer
    cdef list spans             # (hole, begin, end) of those bytes

    def __cinit__(self):
        self.begun = 0
        self.beside = 0
        self.spans = []

    cdef int write_records(self, object records, bint flexible) except -1:
        cdef Py_buffer held
        cdef Py_ssize_t length
        if records is None:
            return self.write_size(-1, flexible)
        if not PyObject_CheckBuffer(records):
            length = records.length
            self.write_size(length, flexible)
            return self.put_beside(records, length)
        PyObject_GetBuffer(records, &held, PyBUF_SIMPLE)
        try:
            length = held.len
            self.write_size(length, flexible)
            if length <= INLINE_BYTES:
                return self.writer.put_raw(held.buf, length)
        finally:
            PyBuffer_Release(&held)
        return self.put_beside(records, length)

    cdef int write_size(self, Py_ssize_t length, bint flexible) except -1:
        if length < -1 or length > MAX_FRAME - 1:
            raise ValueError(f"records of {length} bytes do not fit into a frame")
        if flexible:
            return self.writer.put_uvarint(<uint32_t>(length + 1))
        return self.writer.put_int32(<int32_t>length)

    cdef int put_beside(self, object part, Py_ssize_t length) except -1:
        if length:
            self.end_span()
            self.parts.append(part)
            self.beside += length
        return 0

    cdef int end_span(self) except -1:
        if self.writer.size > self.begun:
            self.spans.append((len(self.parts), self.begun, self.writer.size))
            self.parts.append(None)
            self.begun = self.writer.size
        return 0

    # The bytes are cut out only now, because the first of them, the size, is known only now.
    cdef list finish(self):
        cdef Py_ssize_t hole, begin, end
        cdef Py_ssize_t size = self.writer.size + self.beside - 4
        if size > MAX_FRAME:
            raise ValueError(f"a response of {size} bytes does not fit into a frame")
        store32(self.writer.data, <uint32_t>size)
        self.end_span()
        for hole, begin, end in self.spans:
            self.parts[hole] = PyBytes_FromStringAndSize(<char *>self.writer.data + begin, end - begin)
        return self.parts


cdef int write_aborted(Writer writer, object aborted, bint flexible) except -1:
    if aborted is None:
        return write_count(writer, -1, flexible)
    write_count(writer, len(aborted), flexible)
    for producer_id, first_offset in aborted:
        writer.put_int64(producer_id)
        writer.put_int64(first_offset)
        if flexible:
            writer.put_int8(0)
    return 0


cdef int write_count(Writer writer, Py_ssize_t count, bint flexible) except -1:
    if flexible:
        return writer.put_uvarint(<uint32_t>(count + 1))
    return writer.put_int32(<int32_t>count)


cdef int write_uuid(Writer writer, bytes uuid) except -1:
    if uuid is None or PyBytes_GET_SIZE(uuid) != 16:
        raise ValueError(f"{uuid!r} is no uuid (16 bytes)")
    return writer.put_raw(PyBytes_AS_STRING(uuid), 16)


# None is written as null.
cdef int write_string(Writer writer, str text, bint flexible) except -1:
    cdef Py_ssize_t length = -1
    cdef const char *at = NULL
    if text is not None:
        at = PyUnicode_AsUTF8AndSize(text, &length)
        if length > MAX_STRING:
            raise ValueError(f"a string of {length} bytes is longer than {MAX_STRING}")
    if flexible:
        writer.put_uvarint(<uint32_t>(length + 1))
    else:
        writer.put_int16(<int16_t>length)
    return writer.put_raw(at, length) if length > 0 else 0
