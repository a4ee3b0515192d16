"""Encodes Produce and Fetch responses, size and header included, without building message objects.

The counterpart of `hotpath`; tests compare the bytes with the codec's.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkapy._ext.cursor cimport store32
from kafkapy._ext.residency cimport read_there

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    PRODUCE_FIRST = 0
    PRODUCE_LAST = 11
    PRODUCE_FLEXIBLE = 9
    FETCH_FIRST = 0
    FETCH_LAST = 17
    FETCH_FLEXIBLE = 12
    ENDPOINTS_SINCE = 16
    MAX_STRING = 0x7FFF
    MAX_FRAME = 0x7FFFFFFF
    INLINE_BYTES = 4096         # records in memory up to this size are copied into the bytes around them
    INLINE_REGIONS = 16384      # bytes of file regions that are read into a response, of up to INLINE_BYTES each


def encode_produce_response(int version, int32_t correlation_id, topics, int32_t throttle_ms=0) -> bytes:
    """Return the frame of a Produce response.

    `topics`: [(name, [(partition, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors,
    error_message), ...]), ...]; record_errors is None or [(batch_index, message or None), ...]; error_message may be
    None. Leaders and node endpoints (v10+) are not supported: encode such a response with the codec.
    """
    cdef bint flexible = version >= PRODUCE_FLEXIBLE
    cdef Writer writer
    cdef list parts
    cdef str name
    if not PRODUCE_FIRST <= version <= PRODUCE_LAST:
        raise ValueError(f"encode_produce_response supports the versions 0 to 11, not {version}")
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
            if version >= 2:
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
    if version >= 1:
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
    int version,
    int32_t correlation_id,
    int32_t throttle_ms,
    int16_t error_code,
    int32_t session_id,
    topics,
    endpoints=(),
) -> list:
    """Return the frame of a Fetch response as a list of parts, to be sent one after the other.

    `topics`: [(name, topic_id, [(partition, error_code, high_watermark, last_stable_offset, log_start_offset,
    aborted, preferred_read_replica, records, tagged), ...]), ...]; aborted is None (null) or [(producer_id,
    first_offset), ...]; records is None (null), bytes-like, or any object with a `length` in bytes, such as a
    FileRegion. That object becomes a part of its own, as do bytes above 4 KiB; but small regions whose bytes are in
    memory are read now, up to INLINE_REGIONS bytes of them in all. tagged is None or (diverging epoch,
    current leader), each of them None, (epoch, end offset) or (broker id, leader epoch); before v12 it is left out.
    `endpoints`: [(broker id, host, port, rack or None), ...]; before v16 they are left out.
    """
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef Writer writer
    cdef FrameParts frame
    cdef list parts
    if not FETCH_FIRST <= version <= FETCH_LAST:
        raise ValueError(f"encode_fetch_response supports the versions 0 to 17, not {version}")
    frame = FrameParts.__new__(FrameParts)
    frame.writer = writer = Writer(256)
    frame.parts = []
    writer.put_int32(0)
    writer.put_int32(correlation_id)
    if flexible:
        writer.put_int8(0)
    if version >= 1:
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
        for index, code, high_watermark, stable_offset, log_start_offset, aborted, replica, records, tagged in parts:
            writer.put_int32(index)
            writer.put_int16(code)
            writer.put_int64(high_watermark)
            if version >= 4:
                writer.put_int64(stable_offset)
            if version >= 5:
                writer.put_int64(log_start_offset)
            if version >= 4:
                write_aborted(writer, aborted, flexible)
            if version >= 11:
                writer.put_int32(replica)
            frame.write_records(records, flexible)
            if flexible:
                if tagged is None:
                    writer.put_int8(0)
                else:
                    write_partition_tags(writer, tagged[0], tagged[1])
        if flexible:
            writer.put_int8(0)
    if flexible:
        if endpoints and version >= ENDPOINTS_SINCE:
            write_endpoints(writer, endpoints)
        else:
            writer.put_int8(0)
    return frame.finish()


@cython.final
cdef class FrameParts:
    """A response being encoded by `encode_fetch_response`: one Writer with all bytes, and the parts between them."""

    def __cinit__(self):
        self.begun = 0
        self.parts_size = 0
        self.inlined = 0
        self.spans = []

    cdef int write_records(self, object records, bint flexible) except -1:
        cdef Py_buffer held
        cdef Py_ssize_t length
        if records is None:
            return self.write_size(-1, flexible)
        if not PyObject_CheckBuffer(records):
            length = records.length
            self.write_size(length, flexible)
            if 0 < length <= INLINE_BYTES and self.inlined + length <= INLINE_REGIONS:
                if self.read_region(records, length):
                    return 0
            return self.add_part(records, length)
        PyObject_GetBuffer(records, &held, PyBUF_SIMPLE)
        try:
            length = held.len
            self.write_size(length, flexible)
            if length <= INLINE_BYTES:
                return self.writer.put_raw(held.buf, length)
        finally:
            PyBuffer_Release(&held)
        return self.add_part(records, length)

    # Read a file region into the writer, and return True. Return False, and write nothing, if it has no descriptor
    # (records that are still to be converted), was truncated, or is not in memory as a whole: the connection's sender
    # deals with these. The GIL is kept, so no thread can truncate the file between the check and the read.
    cdef bint read_region(self, object region, Py_ssize_t length) except -1:
        cdef object handle = getattr(region, "handle", None)
        if handle is None or region.is_cut:
            return False
        self.writer.reserve(length)
        if read_there(handle.fd, <char *>self.writer.data + self.writer.size, length, region.position) != length:
            return False
        self.writer.size += length
        self.inlined += length
        return True

    cdef int write_size(self, Py_ssize_t length, bint flexible) except -1:
        if length < -1 or length > MAX_FRAME - 1:
            raise ValueError(f"records of {length} bytes do not fit into a frame")
        if flexible:
            return self.writer.put_uvarint(<uint32_t>(length + 1))
        return self.writer.put_int32(<int32_t>length)

    cdef int add_part(self, object part, Py_ssize_t length) except -1:
        if length:
            self.end_span()
            self.parts.append(part)
            self.parts_size += length
        return 0

    cdef int end_span(self) except -1:
        if self.writer.size > self.begun:
            self.spans.append((len(self.parts), self.begun, self.writer.size))
            self.parts.append(None)
            self.begun = self.writer.size
        return 0

    # The parts are cut from the Writer only here, because the size at its start is not known before.
    cdef list finish(self):
        cdef Py_ssize_t hole, begin, end
        cdef Py_ssize_t size = self.writer.size + self.parts_size - 4
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


# The tagged fields of a partition: 0 is the diverging epoch, 1 is the current leader.
cdef int write_partition_tags(Writer writer, object diverging, object leader) except -1:
    cdef int32_t number
    cdef int64_t offset
    writer.put_uvarint((diverging is not None) + (leader is not None))
    if diverging is not None:
        number, offset = diverging
        writer.put_uvarint(0)
        writer.put_uvarint(13)  # bytes: epoch, end offset, and no tagged fields
        writer.put_int32(number)
        writer.put_int64(offset)
        writer.put_int8(0)
    if leader is not None:
        writer.put_uvarint(1)
        writer.put_uvarint(9)  # bytes: broker id, leader epoch, and no tagged fields
        number, offset = leader
        writer.put_int32(number)
        writer.put_int32(<int32_t>offset)
        writer.put_int8(0)
    return 0


# Write the addresses of brokers, the only tagged field of a response. The field is encoded by another Writer first,
# because its size precedes it.
cdef int write_endpoints(Writer writer, object endpoints) except -1:
    cdef Writer field = Writer(64)
    write_count(field, len(endpoints), True)
    for broker_id, host, port, rack in endpoints:
        field.put_int32(broker_id)
        write_string(field, host, True)
        field.put_int32(port)
        write_string(field, rack, True)
        field.put_int8(0)
    writer.put_uvarint(1)
    writer.put_uvarint(0)
    writer.put_uvarint(<uint32_t>field.size)
    return writer.put_raw(field.data, field.size)


cdef int write_count(Writer writer, Py_ssize_t count, bint flexible) except -1:
    if flexible:
        return writer.put_uvarint(<uint32_t>(count + 1))
    return writer.put_int32(<int32_t>count)


cdef int write_uuid(Writer writer, bytes uuid) except -1:
    if uuid is None or PyBytes_GET_SIZE(uuid) != 16:
        raise ValueError(f"{uuid!r} is not a uuid (16 bytes)")
    return writer.put_raw(PyBytes_AS_STRING(uuid), 16)


# None becomes null.
cdef int write_string(Writer writer, str text, bint flexible) except -1:
    cdef Py_ssize_t length = -1
    cdef const char *at = NULL
    if text is not None:
        try:
            at = PyUnicode_AsUTF8AndSize(text, &length)
        except UnicodeEncodeError:  # a lone surrogate, for example of a path, becomes "?", as in the codec
            text = text.encode("utf-8", "replace").decode()
            at = PyUnicode_AsUTF8AndSize(text, &length)
        if length > MAX_STRING:
            raise ValueError(f"a string of {length} bytes is longer than {MAX_STRING}")
    if flexible:
        writer.put_uvarint(<uint32_t>(length + 1))
    else:
        writer.put_int16(<int16_t>length)
    return writer.put_raw(at, length) if length > 0 else 0
